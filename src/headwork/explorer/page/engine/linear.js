import { tensor } from "./tensor.js";

// y = x W^T + b for every token: W has the axes [output, input], as in PyTorch.
export function linear(part, x) {
  return part.see(affine(x, part.weight("weight"), part.has("bias") ? part.weight("bias") : null));
}

// Two tokens and four outputs at a time: each number that is read serves several products, which is many times faster than
// one by one. Where that does not come out even, the last token or output is computed again.
export function affine(x, weight, bias = null) {
  const nOut = weight.shape[0];
  const nIn = weight.data.length / nOut;
  const nTokens = x.data.length / nIn;
  const y = tensor([...x.shape.slice(0, -1), nOut]);
  const b = bias ? bias.data : new Float32Array(nOut);
  for (let t = 0; t < nTokens; t += 2) {
    for (let o = 0; o < nOut; o += 4) {
      eightProducts(x.data, t, Math.min(t + 1, nTokens - 1), weight.data, o, nIn, y.data, nOut, b);
    }
  }
  return y;
}

// The dot products of the rows t and u of x with the rows o, o + 1, o + 2 and o + 3 of w, each of n numbers, plus b.
function eightProducts(x, t, u, w, o, n, y, nOut, b) {
  const o1 = Math.min(o + 1, nOut - 1);
  const o2 = Math.min(o + 2, nOut - 1);
  const o3 = Math.min(o + 3, nOut - 1);
  let t0 = b[o];
  let t1 = b[o1];
  let t2 = b[o2];
  let t3 = b[o3];
  let u0 = t0;
  let u1 = t1;
  let u2 = t2;
  let u3 = t3;
  for (let i = 0; i < n; i++) {
    const xt = x[t * n + i];
    const xu = x[u * n + i];
    const w0 = w[o * n + i];
    const w1 = w[o1 * n + i];
    const w2 = w[o2 * n + i];
    const w3 = w[o3 * n + i];
    t0 += xt * w0;
    t1 += xt * w1;
    t2 += xt * w2;
    t3 += xt * w3;
    u0 += xu * w0;
    u1 += xu * w1;
    u2 += xu * w2;
    u3 += xu * w3;
  }
  y[t * nOut + o] = t0;
  y[t * nOut + o1] = t1;
  y[t * nOut + o2] = t2;
  y[t * nOut + o3] = t3;
  y[u * nOut + o] = u0;
  y[u * nOut + o1] = u1;
  y[u * nOut + o2] = u2;
  y[u * nOut + o3] = u3;
}
