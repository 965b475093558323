import { readingOf } from "./reading.js";
import { bestFirst, softmax } from "./sampling.js";
import { slice, tensor } from "./tensor.js";

const nBest = 5;

// What each layer would answer at each token, if the model ended with it; of a classifier also on the whole. Then each token
// is read as if it alone were pooled.
export function answerLens(subject, { about }) {
  const { encoded, points, settings } = readingOf(subject, about);
  const { layers: names, output, n_outputs: nOutputs } = subject.about;
  const stackName = names[0].slice(0, names[0].lastIndexOf("."));
  const others = memoryOf(subject, points);
  const answerAfter = (x) => {
    const resume = { ...others, [stackName]: { layer: names.length, x } };
    return subject.model.run(encoded.input, { weights: settings.weights, resume }).logits;
  };
  const nTokens = points[names[0]].shape[0];
  const nTop = Math.min(nBest, nOutputs);
  const shape = [names.length, nTokens, nTop];
  const [ids, shares] = [new Int32Array(names.length * nTokens * nTop), tensor(shape)];
  const whole = tensor([names.length, nOutputs]);
  names.forEach((name, layer) => {
    const hidden = points[name];
    const all = output === "class" ? null : answerAfter(hidden);
    if (!all) whole.data.set(softmax(answerAfter(hidden).data), layer * nOutputs);
    for (let t = 0; t < nTokens; t++) {
      const scores = all ? slice(all, t, t + 1).data : answerAfter(alone(slice(hidden, t, t + 1), subject)).data;
      const chances = softmax(scores);
      bestFirst(chances).slice(0, nTop).forEach((id, place) => {
        ids[(layer * nTokens + t) * nTop + place] = id;
        shares.data[(layer * nTokens + t) * nTop + place] = chances[id];
      });
    }
  });
  const strings = Object.fromEntries([...new Set(ids)].map((id) => [id, subject.nameOf(id)]));
  const arrays = { ids: { shape, data: ids }, probabilities: shares };
  if (output === "class") arrays.whole = whole;
  return { header: { names, strings }, arrays };
}

// A token as all that there is; a pooling that reads two tokens gets it twice.
function alone(token, subject) {
  if (subject.model.config.pooling?.kind !== "DistillationToken") return token;
  return tensor([2, token.shape[1]], Float32Array.from([...token.data, ...token.data]));
}

// The encoder of an encoder-decoder has run: it goes on behind its last layer.
export function memoryOf(subject, points) {
  const nLayers = subject.model.config.n_encoder_layers;
  return nLayers ? { encoder_layers: { layer: nLayers, x: points[`encoder_layers.${nLayers - 1}`] } } : {};
}
