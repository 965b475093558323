import { transformerLayer } from "./layer.js";
import { norm } from "./norm.js";
import { positionCode } from "./positions.js";
import { add } from "./tensor.js";

// Positions join the embedded tokens, then layer after layer, then the final norm. `seen` is what the layers may see:
// { causal, visible, memory, memoryVisible, cache, grid }; see attention.js. If the run resumes this stack, the layers before
// `layer` are passed by, and x is what that one reads.
export function stack(part, x, config, nLayers, seen) {
  const nPast = seen.cache ? seen.cache.nTokens : 0;
  const positions = countPositions(x.shape[0], nPast, seen.visible);
  const sizes = { dModel: config.d_model, nHeads: config.heads.n_heads };
  const code = positionCode(part.inside("positions"), config.position ?? { kind: "NoPositions" }, positions, sizes);
  if (code.vectors) x = add(x, code.vectors);
  if (part.has("embedding_norm")) x = norm(part.inside("embedding_norm"), x, config.norm);
  x = part.inside("embedded").see(x);
  const resumed = part.run.resume[part.name];
  if (resumed) x = resumed.x;
  for (let i = resumed ? resumed.layer : 0; i < nLayers; i++) {
    const { window } = config;
    const isLocal = window && (window.layers ?? [i]).includes(i);
    x = transformerLayer(part.inside(i), x, config, { ...seen, ...code, window: isLocal ? window.n_tokens : null });
  }
  if (part.has("final_norm")) x = norm(part.inside("final_norm"), x, config.norm);
  return part.see(x);
}

// The position of each token: only visible ones count, so that padding moves nothing.
function countPositions(nTokens, nPast, visible) {
  if (!visible) return Array.from({ length: nTokens }, (_, i) => nPast + i);
  let count = -1;
  return visible.map((isVisible) => Math.max((count += Number(isVisible)), 0)).slice(-nTokens);
}
