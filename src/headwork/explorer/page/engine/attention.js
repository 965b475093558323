import { linear } from "./linear.js";
import { norm } from "./norm.js";
import { softargmax } from "./softargmax.js";
import { reshape, tensor } from "./tensor.js";

// Multi-head attention from x to the memory (to itself, if that is x): softargmax(beta q k^T + bias) v for each head,
// then a linear map of all heads. `choice` is the config of the heads. What is seen:
//   visible   one boolean for each key, false for padding       causal  no key behind the query
//   window    only keys less than so many tokens away           bias    (head, query, key) => what the score gains
//   rotate    (x, [token, head, d_head]) => x rotated           cache   keys and values of the tokens before
export function attention(part, x, memory, choice, seen = {}) {
  let q = split(part, "query", x, choice.n_heads, choice);
  q = part.inside("queries").see(q);
  if (seen.rotate) q = part.inside("rotated_queries").see(seen.rotate(q));
  const makeKeys = () => project(part, memory, choice, seen);
  const [k, v] = seen.cache ? seen.cache.keep(part.name, x !== memory, makeKeys) : makeKeys();

  const scores = part.inside("scores").see(attentionScores(q, k, choice, seen));
  const weights = part.inside("weights").see(softargmax(scores, choice.beta === "inf" ? Infinity : 1));
  const heads = part.inside("heads").see(mix(weights, v));
  return part.see(linear(part.inside("out"), reshape(heads, [x.shape[0], heads.shape[1] * heads.shape[2]])));
}

function project(part, memory, choice, seen) {
  const nHeads = choice.n_kv_heads ?? choice.n_heads;
  let k = part.inside("keys").see(split(part, "key", memory, nHeads, choice));
  if (seen.rotate) k = part.inside("rotated_keys").see(seen.rotate(k));
  const v = linear(part.inside("value"), memory);
  return [k, part.inside("values").see(reshape(v, [memory.shape[0], nHeads, v.shape[1] / nHeads]))];
}

// Queries or keys, [token, head, d_head], normalised if the choice says so.
function split(part, name, x, nHeads, choice) {
  let y = linear(part.inside(name), x);
  const shape = [x.shape[0], nHeads, y.shape[1] / nHeads];
  if (!choice.qk_norm) return reshape(y, shape);
  if (choice.qk_norm.per_head) y = reshape(y, shape);
  return reshape(norm(part.inside(`${name}_norm`), y, choice.qk_norm.norm), shape);
}

// beta q k^T + bias, and -Infinity where a key is hidden: [head, query, key].
function attentionScores(q, k, choice, { visible, causal, window, bias }) {
  const [nQuery, nHeads, d] = q.shape;
  const [nKey, nKeyHeads] = k.shape;
  const scores = tensor([nHeads, nQuery, nKey]);
  const scale = choice.beta === "inf" ? 1 : (choice.beta ?? 1 / Math.sqrt(d));
  const cap = choice.softcap ?? null;
  for (let h = 0, place = 0; h < nHeads; h++) {
    const keyHead = Math.floor((h * nKeyHeads) / nHeads); // several heads may share a key
    for (let i = 0; i < nQuery; i++) {
      const now = i + nKey - nQuery; // the queries are the newest tokens
      const from = (i * nHeads + h) * d;
      for (let j = 0; j < nKey; j++, place++) {
        const isHidden = (causal && j > now) || (window && Math.abs(now - j) >= window) || (visible && !visible[j]);
        if (isHidden) {
          scores.data[place] = -Infinity;
          continue;
        }
        const to = (j * nKeyHeads + keyHead) * d;
        let dot = 0;
        for (let c = 0; c < d; c++) dot += q.data[from + c] * k.data[to + c];
        const score = cap ? cap * Math.tanh((scale * dot) / cap) : scale * dot;
        scores.data[place] = bias ? score + bias(h, now, j) : score;
      }
    }
  }
  return scores;
}

// The mean of the values under the weights: [query, head, d_value].
export function mix(weights, v) {
  const [nHeads, nQuery, nKey] = weights.shape;
  const [, nValueHeads, d] = v.shape;
  const heads = tensor([nQuery, nHeads, d]);
  for (let h = 0; h < nHeads; h++) {
    const valueHead = Math.floor((h * nValueHeads) / nHeads);
    for (let i = 0; i < nQuery; i++) {
      const mean = heads.data.subarray((i * nHeads + h) * d, (i * nHeads + h + 1) * d);
      for (let j = 0; j < nKey; j++) {
        const weight = weights.data[(h * nQuery + i) * nKey + j];
        if (weight === 0) continue;
        const from = (j * nValueHeads + valueHead) * d;
        for (let c = 0; c < d; c++) mean[c] += weight * v.data[from + c];
      }
    }
  }
  return heads;
}
