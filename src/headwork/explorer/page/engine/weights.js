import { sizeOf, tensor } from "./tensor.js";

// Weights as they stand in a page: { dtype: "float16" or "float32", shapes: {name: [sizes]}, base64 }, one behind the other.
export function readWeights({ dtype, shapes, base64 }) {
  const { buffer } = bytesOf(base64);
  const numbers = dtype === "float16" ? fromFloat16(new Uint16Array(buffer)) : new Float32Array(buffer);
  const weights = {};
  let start = 0;
  for (const [name, shape] of Object.entries(shapes)) {
    const end = start + sizeOf(shape);
    weights[name] = tensor(shape, numbers.subarray(start, end));
    start = end;
  }
  return weights;
}

export function bytesOf(base64) {
  const letters = atob(base64);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

// There are only 65,536 numbers of 16 bits: each is worked out once.
export function fromFloat16(halves) {
  const numbers = new Float32Array(65536);
  for (let half = 0; half < numbers.length; half++) numbers[half] = numberOfHalf(half);
  return Float32Array.from(halves, (half) => numbers[half]);
}

// One bit for the sign, five for the exponent, ten for the fraction; with the smallest exponent there is no leading 1.
function numberOfHalf(half) {
  const sign = half >> 15 ? -1 : 1;
  const exponent = (half >> 10) & 31;
  const fraction = (half & 1023) / 1024;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + fraction) * 2 ** (exponent - 15) : fraction * 2 ** -14);
}
