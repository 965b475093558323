import { activations } from "./activations.js";
import { affine, linear } from "./linear.js";
import { norm } from "./norm.js";
import { pool, joinPoolingTokens } from "./pooling.js";
import { addGrid, rowsOf } from "./positions.js";
import { stack } from "./stack.js";
import { add, mapNumbers, tensor } from "./tensor.js";

// From the input to the logits, for each architecture. `model` is the part that stands for the whole model, `config` is its
// config as headwork saves it. Images are { shape: [channel, row, column], data }, texts are lists of ids.
export const models = {
  // What each token is followed by. [token, vocab]
  DecoderConfig(model, config, { ids, visible = null, cache = null }) {
    const embedded = embed(model, "embedding", ids, config);
    const x = stack(model.inside("layers"), embedded, config, config.n_layers, { causal: true, visible, cache });
    return model.see(lmHead(model, x, "embedding", config));
  },

  // What each target token is followed by, given the source. [token, vocab]
  EncoderDecoderConfig(model, config, { source, target, sourceVisible = null, targetVisible = null, cache = null }) {
    const memory = encode(model, config, { source, sourceVisible, cache });
    const name = config.target_vocab === null ? "embedding" : "target_embedding";
    const seen = { causal: true, visible: targetVisible, memory, memoryVisible: sourceVisible, cache };
    const embedded = embed(model, name, target, config);
    const x = stack(model.inside("decoder_layers"), embedded, config, config.n_decoder_layers, seen);
    return model.see(lmHead(model, x, name, config));
  },

  // The logits of the head: of the classes [class], or at each token [token, ...].
  EncoderConfig(model, config, { ids, segments = null, visible = null }) {
    let x = embed(model, "embedding", ids, {});
    if (config.n_segments) {
      const of = model.inside("segments").see(rowsOf(model.weight("segments.table"), segments ?? ids.map(() => 0)));
      x = add(x, of);
    }
    x = stack(model.inside("layers"), x, config, config.n_layers, { visible });
    return model.see(encoderHead(model, x, config, visible));
  },

  // The score of each class. [class]
  VisionTransformerConfig(model, config, { image }) {
    let x = embedPatches(model.inside("patches"), image, config.patch);
    x = addGrid(model.inside("positions"), x, config.position, gridOf(image, config.patch));
    x = joinPoolingTokens(model.inside("pooling"), x, config.pooling);
    x = stack(model.inside("layers"), x, { ...config, position: null }, config.n_layers, {});
    const pooled = pool(model.inside("pooling"), x, config.pooling);
    const head = model.inside("classifier");
    return classLogits(model, config.head.kind === "LinearHead" ? linear(head, pooled) : denseHead(head, pooled, config.head));
  },

  // The same, of heads that look by position.
  GaussianImageEncoderConfig(model, config, { image }) {
    let x = embedPatches(model.inside("patches"), image, config.patch);
    x = stack(model.inside("layers"), x, config, config.n_layers, { grid: gridOf(image, config.patch) });
    return classLogits(model, linear(model.inside("classifier"), pool(model.inside("pooling"), x, { kind: "MeanPooling" })));
  },
};

// The memory of an encoder-decoder: a vector for each source token. It stays in the cache, if there is one.
function encode(model, config, { source, sourceVisible, cache }) {
  if (cache?.memory) return cache.memory;
  const embedded = embed(model, "embedding", source, config);
  const memory = stack(model.inside("encoder_layers"), embedded, config, config.n_encoder_layers, { visible: sourceVisible });
  if (cache) cache.memory = memory;
  return memory;
}

function embed(model, name, ids, config) {
  const scale = config.scaled_embedding ? Math.sqrt(config.d_model) : 1;
  return model.inside(name).see(rowsOf(model.weight(`${name}.table`), ids, scale));
}

// One score for each token of the vocabulary, by the embedding table (tied) or by weights of its own.
function lmHead(model, x, embedding, config) {
  const [head, choice] = [model.inside("lm_head"), config.lm_head];
  const scaled = choice.scaled ? mapNumbers(x, (number) => number / Math.sqrt(config.d_model)) : x;
  const weight = choice.kind === "TiedLMHead" ? model.weight(`${embedding}.table`) : head.weight("weight");
  const logits = affine(scaled, weight, choice.bias ? head.weight("bias") : null);
  const cap = choice.softcap;
  return head.see(cap ? mapNumbers(logits, (logit) => cap * Math.tanh(logit / cap)) : logits);
}

function encoderHead(model, x, config, visible) {
  const [head, choice] = [model.inside("head"), config.head];
  switch (choice.kind) {
    case "ClassificationHead": {
      const pooled = pool(head.inside("pooling"), x, choice.pooling, visible);
      const logits = choice.activation ? denseHead(head, pooled, choice) : linear(head.inside("classifier"), pooled);
      return head.see(logits);
    }
    case "TokenClassificationHead":
      return head.see(linear(head.inside("classifier"), x));
    case "MaskedLMHead": {
      const dense = mapNumbers(linear(head.inside("dense"), x), activations[choice.activation]);
      const normalised = norm(head.inside("norm"), dense, config.norm);
      const logits = affine(normalised, model.weight("embedding.table"), head.weight("lm_head.bias"));
      return head.see(head.inside("lm_head").see(logits));
    }
    default:
      return x;
  }
}

// Linear, activation, linear.
function denseHead(part, x, choice) {
  const hidden = mapNumbers(linear(part.inside("dense"), x), activations[choice.activation]);
  return part.see(linear(part.inside("classifier"), part.inside("activation").see(hidden)));
}

function classLogits(model, x) {
  return model.see(model.inside("logits").see(x));
}

// One linear map for every patch, read left to right and top to bottom: [token, d_model].
function embedPatches(part, image, [patchRows, patchColumns]) {
  const [nChannels, nRows, nColumns] = image.shape;
  const [gridRows, gridColumns] = gridOf(image, [patchRows, patchColumns]);
  const patches = tensor([gridRows * gridColumns, nChannels * patchRows * patchColumns]);
  let place = 0;
  for (let i = 0; i < gridRows; i++)
    for (let j = 0; j < gridColumns; j++)
      for (let channel = 0; channel < nChannels; channel++)
        for (let r = i * patchRows; r < (i + 1) * patchRows; r++)
          for (let c = j * patchColumns; c < (j + 1) * patchColumns; c++)
            patches.data[place++] = image.data[(channel * nRows + r) * nColumns + c];
  return part.see(affine(patches, part.weight("weight"), part.weight("bias")));
}

function gridOf(image, patch) {
  return [image.shape[1] / patch[0], image.shape[2] / patch[1]];
}
