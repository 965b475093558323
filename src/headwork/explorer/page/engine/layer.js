import { attention } from "./attention.js";
import { feedForward } from "./feed_forward.js";
import { gaussianAttention } from "./gaussian.js";
import { linear } from "./linear.js";
import { norm } from "./norm.js";
import { add, reshape } from "./tensor.js";

// A layer of a Transformer: attention, attention to a memory (of a decoder that has one), a feed-forward network. Each has
// a residual connection and a norm: x + f(norm(x)), or norm(x + f(x)) if the order is "post".
export function transformerLayer(part, x, config, seen) {
  const residual = (name, x, f) => {
    const normalise = (x) => norm(part.inside(`${name}_norm`), x, config.norm);
    return config.norm_order === "pre" ? add(x, f(normalise(x))) : normalise(add(x, f(x)));
  };
  x = residual("attention", x, (x) => (seen.grid ? attendOnGrid(part, x, config, seen.grid) : attend(part, x, config, seen)));
  if (seen.memory) x = residual("cross_attention", x, (x) => attendToMemory(part, x, config, seen));
  return part.see(residual("feed_forward", x, (x) => feedForward(part.inside("feed_forward"), x, config.feed_forward)));
}

function attend(part, x, config, seen) {
  return attention(part.inside("attention"), x, x, config.heads, seen);
}

function attendToMemory(part, x, config, { memory, memoryVisible, cache }) {
  return attention(part.inside("cross_attention"), x, memory, config.heads, { visible: memoryVisible, cache });
}

function attendOnGrid(part, x, config, grid) {
  const mixed = reshape(gaussianAttention(part.inside("attention"), x, grid, config.heads.n_heads), x.shape);
  return config.dense_after_attention ? linear(part.inside("dense"), mixed) : mixed;
}
