import { mix } from "./attention.js";
import { linear } from "./linear.js";
import { softargmax } from "./softargmax.js";
import { reshape, tensor } from "./tensor.js";

// Heads that look at an offset (row, column) from the query, whatever is there: weights ~ e^(-alpha |key - query - centre|^2).
// x is [row * column, d_model]; each head passes on the whole token, or its value if there is a value projection.
export function gaussianAttention(part, x, grid, nHeads) {
  const nTokens = x.shape[0];
  const table = reshape(gaussianWeights(part, grid, nHeads), [nHeads, ...grid, ...grid]);
  const weights = reshape(part.inside("weights").see(table), [nHeads, nTokens, nTokens]);
  const hasValue = part.has("value");
  const v = hasValue ? linear(part.inside("value"), reshape(x, [...grid, x.shape[1]])) : x;
  const nValueHeads = hasValue ? nHeads : 1; // without a projection all heads share the token
  const values = reshape(v, [nTokens, nValueHeads, v.data.length / nTokens / nValueHeads]);
  const mixed = mix(weights, values);
  const heads = part.inside("heads").see(reshape(mixed, [...grid, ...mixed.shape.slice(1)]));
  return part.see(linear(part.inside("out"), reshape(heads, [...grid, mixed.shape[1] * mixed.shape[2]])));
}

// The table of all pairs of pixels, [head, query, key]: the weights along the rows times those along the columns.
export function gaussianWeights(part, [nRows, nColumns], nHeads) {
  const [centre, alpha] = [part.weight("centre").data, alphas(part.weight("sharpness"), nHeads)];
  const n = nRows * nColumns;
  const table = tensor([nHeads, n, n]);
  for (let h = 0, place = 0; h < nHeads; h++) {
    const rows = axisWeights(nRows, centre[2 * h], alpha[h][0]).data;
    const columns = axisWeights(nColumns, centre[2 * h + 1], alpha[h][1]).data;
    for (let i = 0; i < nRows; i++)
      for (let j = 0; j < nColumns; j++)
        for (let r = 0; r < nRows; r++)
          for (let c = 0; c < nColumns; c++) table.data[place++] = rows[i * nRows + r] * columns[j * nColumns + c];
  }
  return table;
}

// softmax over the keys of -alpha (key - query - centre)^2, along one axis.
function axisWeights(n, centre, alpha) {
  const scores = tensor([n, n]);
  for (let query = 0; query < n; query++)
    for (let key = 0; key < n; key++) scores.data[query * n + key] = -alpha * (key - query - centre) ** 2;
  return softargmax(scores);
}

// How sharply each head looks, along (rows, columns): positive whatever the parameter is.
export function alphas(sharpness, nHeads) {
  const alpha = (number) => Math.exp(Math.min(Math.max(number, -80), 80));
  const width = sharpness.data.length / nHeads; // one number for both directions, or one for each
  const ofHead = (h) => [0, 1].map((axis) => alpha(sharpness.data[h * width + Math.min(axis, width - 1)]));
  return Array.from({ length: nHeads }, (_, h) => ofHead(h));
}
