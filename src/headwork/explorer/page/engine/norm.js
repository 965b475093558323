import { tensor } from "./tensor.js";

// Normalise the features of each token; `choice` is { kind, eps }.
//   LayerNorm          gamma (x - mean) / sqrt(variance + eps) + beta
//   RMSNorm            gamma x / sqrt(mean of squares + eps)
//   UnbiasedLayerNorm  gamma (x - mean) / (deviation + eps) + beta, the variance divided by d - 1
export function norm(part, x, choice) {
  const gamma = part.weight("weight").data;
  const beta = part.has("bias") ? part.weight("bias").data : null;
  const d = gamma.length;
  const y = tensor(x.shape);
  for (let start = 0; start < x.data.length; start += d) {
    const token = x.data.subarray(start, start + d);
    const mean = choice.kind === "RMSNorm" ? 0 : sum(token) / d;
    const squares = token.reduce((total, number) => total + (number - mean) ** 2, 0);
    const isUnbiased = choice.kind === "UnbiasedLayerNorm";
    const size = isUnbiased ? Math.sqrt(squares / (d - 1)) + choice.eps : Math.sqrt(squares / d + choice.eps);
    for (let i = 0; i < d; i++) y.data[start + i] = (gamma[i] * (token[i] - mean)) / size + (beta ? beta[i] : 0);
  }
  return part.see(y);
}

function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}
