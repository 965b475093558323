import { add, tensor } from "./tensor.js";

// What a position code adds to tokens, how it rotates queries and keys, what scores gain: { vectors, rotate, bias }, each
// null if it does not. `positions` are the places of the tokens; `part` is that of the code.
export function positionCode(part, choice, positions, { dModel, nHeads }) {
  const code = { vectors: null, rotate: null, bias: null };
  switch (choice.kind) {
    case "LearnedPositions":
      code.vectors = rowsOf(part.weight("table"), positions);
      break;
    case "SinusoidalPositions":
      code.vectors = sinusoids(positions, dModel, choice);
      break;
    case "RotaryPositions":
      code.rotate = (x) => rotate(x, positions, choice);
      break;
    case "AlibiPositions":
      code.bias = alibi(nHeads);
      break;
  }
  return code;
}

// One row of a table for each id.
export function rowsOf(table, ids, scale = 1) {
  const d = table.shape[1];
  const rows = tensor([ids.length, d]);
  ids.forEach((id, t) => {
    if (!(id >= 0 && id < table.shape[0])) throw new Error(`ids must lie in 0 .. ${table.shape[0] - 1}, got ${id}`);
    for (let c = 0; c < d; c++) rows.data[t * d + c] = scale * table.data[id * d + c];
  });
  return rows;
}

// sin(p / base^(2i/d)) and cos of the same, side by side, or all sines before all cosines (halves).
export function sinusoids(positions, d, { base = 10000, layout = "interleaved" } = {}) {
  const rows = tensor([positions.length, d]);
  positions.forEach((position, t) => {
    for (let c = 0; c < d; c++) {
      const angle = position * base ** ((-2 * Math.floor(c / 2)) / d);
      const to = layout === "interleaved" ? c : c % 2 === 0 ? c / 2 : Math.ceil(d / 2) + (c - 1) / 2;
      rows.data[t * d + to] = c % 2 === 0 ? Math.sin(angle) : Math.cos(angle);
    }
  });
  return rows;
}

// Each pair (a, b) of the features of a head becomes (a cos - b sin, a sin + b cos): x is [token, head, d_head].
export function rotate(x, positions, { base = 10000, layout = "halves", fraction = 1 } = {}) {
  const [nTokens, nHeads, d] = x.shape;
  const nRotated = Math.floor(d * fraction);
  const y = tensor(x.shape, x.data.slice());
  for (let t = 0; t < nTokens; t++) {
    for (let pair = 0; pair < nRotated / 2; pair++) {
      const angle = positions[t] * base ** ((-2 * pair) / nRotated);
      const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
      const [first, second] = layout === "halves" ? [pair, pair + nRotated / 2] : [2 * pair, 2 * pair + 1];
      for (let h = 0; h < nHeads; h++) {
        const at = (t * nHeads + h) * d;
        const [a, b] = [x.data[at + first], x.data[at + second]];
        y.data[at + first] = a * cos - b * sin;
        y.data[at + second] = a * sin + b * cos;
      }
    }
  }
  return y;
}

// -slope |distance|: the slopes are 2^(-8/n), 2^(-16/n), ... for n heads, a power of two; for other counts those of the
// next smaller power, and every second one of twice as many.
function alibi(nHeads) {
  const steps = (n) => Array.from({ length: n }, (_, h) => 2 ** ((-8 * (h + 1)) / n));
  const power = 2 ** Math.floor(Math.log2(nHeads));
  const slopes = [...steps(power), ...steps(2 * power).filter((_, h) => h % 2 === 0)].slice(0, nHeads);
  return (head, query, key) => -slopes[head] * Math.abs(query - key);
}

// The places of the patches of an image: a learned vector for each, or sinusoids of the row beside those of the column.
export function addGrid(part, patches, choice, [nRows, nColumns]) {
  if (choice.kind === "NoPositions") return patches;
  if (choice.kind === "LearnedGrid") return part.see(add(patches, part.weight("table")));
  const d = patches.shape[1];
  const half = Math.floor(d / 2);
  const row = sinusoids([...Array(nRows).keys()], d - half);
  const column = sinusoids([...Array(nColumns).keys()], half);
  const both = patches.data.map((number, i) => {
    const [place, c] = [Math.floor(i / d), i % d];
    const [r, k] = [Math.floor(place / nColumns), place % nColumns];
    return number + (c < d - half ? row.data[r * (d - half) + c] : column.data[k * half + c - (d - half)]);
  });
  return part.see(tensor(patches.shape, both));
}
