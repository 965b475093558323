import { tensor } from "./tensor.js";

// Weights over the last axis: e^(beta s_j) / sum of e^(beta s_k). A score of -Infinity hides its key; a query that sees
// none gets zeros. beta = Infinity is hard attention: the largest score takes all, and ties share.
export function softargmax(scores, beta = 1) {
  const n = scores.shape.at(-1);
  const weights = tensor(scores.shape);
  for (let start = 0; start < scores.data.length; start += n) {
    const row = scores.data.subarray(start, start + n);
    let best = -Infinity;
    for (const score of row) best = Math.max(best, score);
    if (best === -Infinity) continue;
    let total = 0;
    for (let j = 0; j < n; j++) {
      // Measured from the best score nothing overflows.
      const share = beta === Infinity ? Number(row[j] === best) : row[j] === -Infinity ? 0 : Math.exp(beta * (row[j] - best));
      weights.data[start + j] = share;
      total += share;
    }
    for (let j = 0; j < n; j++) weights.data[start + j] /= total;
  }
  return weights;
}
