import { attention } from "./attention.js";
import { feedForward } from "./feed_forward.js";
import { norm } from "./norm.js";
import { add, join, reshape, slice, tensor } from "./tensor.js";

// The tokens of an image with those of the pooling in front.
export function joinPoolingTokens(part, tokens, choice) {
  const own = { ClassToken: ["class_token"], DistillationToken: ["class_token", "distillation_token"] }[choice.kind] ?? [];
  return join(...own.map((name) => reshape(part.weight(name), [1, tokens.shape[1]])), tokens);
}

// From the tokens to one vector, [d_model]; `visible` says which count.
export function pool(part, tokens, choice, visible = null) {
  const pooled = poolingRules[choice.kind](part, tokens, choice, visible ?? Array(tokens.shape[0]).fill(true));
  return part.see(reshape(pooled, [pooled.data.length]));
}

const poolingRules = {
  ClassToken: (part, tokens) => slice(tokens, 0, 1),
  DistillationToken: (part, tokens) => slice(tokens, 0, 2),
  FirstToken: (part, tokens, choice, visible) => {
    const first = Math.max(visible.indexOf(true), 0);
    return slice(tokens, first, first + 1);
  },
  MeanPooling: (part, tokens, choice, visible) => overTokens(tokens, visible, mean),
  MaxPooling: (part, tokens, choice, visible) => overTokens(tokens, visible, (column) => Math.max(...column)),
  AttentionPooling: (part, tokens, choice, visible) => {
    const probe = reshape(part.weight("probe"), [1, tokens.shape[1]]);
    const pooled = attention(part.inside("attention"), probe, tokens, { n_heads: choice.n_heads }, { visible });
    const normalised = norm(part.inside("norm"), pooled, { kind: "LayerNorm", eps: 1e-5 });
    return add(pooled, feedForward(part.inside("feed_forward"), normalised, { activation: "gelu" }));
  },
};

function mean(numbers) {
  return numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
}

// A number for each feature from those of the visible tokens; 0 if there is none.
function overTokens(tokens, visible, rule) {
  const d = tokens.shape[1];
  const places = visible.flatMap((isVisible, t) => (isVisible ? [t] : []));
  const pooled = tensor([d]);
  for (let c = 0; c < d && places.length; c++) pooled.data[c] = rule(places.map((t) => tokens.data[t * d + c]));
  return pooled;
}
