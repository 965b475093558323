import { Refused } from "../ask.js";
import { gaussianWeights } from "./gaussian.js";
import { Part } from "./part.js";
import { readingOf } from "./reading.js";
import { softmax } from "./sampling.js";
import { reshape, tensor } from "./tensor.js";

// The convolution whose kernel is what the heads of a layer see from the middle of the grid, cut to its size; how far the
// layer can be from it; and what the model says with such convolutions in all of its layers.
export function answerConvolution(subject, { about, attention, kernel_size: size = 3 }) {
  const { encoded, settings } = readingOf(subject, { ...about, off: [] });
  const weights = { ...subject.model.weights, ...settings.weights };
  const layers = subject.about.gaussian.map((each) => ({ ...each, name: subject.about.attention[each.attention].name }));
  const chosen = layers.find((each) => each.attention === attention);
  if (!chosen) throw new Refused(`Attention ${attention} has no Gaussian heads.`);
  const most = Math.min(...chosen.grid);
  if (!(size >= 1 && size <= most)) throw new Refused(`The kernel must have 1 .. ${most} patches along each side, got ${size}.`);

  const edits = {};
  for (const layer of layers) {
    const found = nearestConvolution(weights, layer, size);
    layer.found = found;
    edits[`${layer.name}.weights`] = (table) => reshape(found.table, table.shape);
  }
  const { kernel, singlePixel, errorBound } = chosen.found;
  const { logits } = subject.model.run(encoded.input, { ...settings, edits });
  const probabilities = tensor([logits.data.length], Float32Array.from(softmax(logits.data)));
  return { header: { error_bound: errorBound, kernel_size: size }, arrays: { kernel, single_pixel: singlePixel, probabilities } };
}

function nearestConvolution(weights, { name, grid, alpha }, size) {
  const nHeads = alpha.length;
  const [nRows, nColumns] = grid;
  const n = nRows * nColumns;
  const heads = gaussianWeights(new Part({ weights, edits: {}, resume: {}, points: {} }, name), grid, nHeads);
  const before = Math.floor((size - 1) / 2); // so many of the kernel's rows lie above the query
  const [top, left] = grid.map((length) => Math.floor((length - size) / 2));
  const middle = (top + before) * nColumns + left + before;
  const centre = Math.floor(nRows / 2) * nColumns + Math.floor(nColumns / 2);
  const kernel = tensor([nHeads, size, size]); // what the heads see around the centre of the grid, to be shown
  const singlePixel = tensor([nHeads]);
  const table = tensor([nHeads, n, n]); // where the convolution puts its weight: past the border it reads the border
  for (let h = 0; h < nHeads; h++) {
    const seen = heads.data.subarray((h * n + middle) * n, (h * n + middle + 1) * n);
    singlePixel.data[h] = Math.max(...seen);
    const shown = heads.data.subarray((h * n + centre) * n, (h * n + centre + 1) * n);
    for (let i = 0; i < size; i++)
      for (let j = 0; j < size; j++) {
        const weight = seen[(top + i) * nColumns + left + j];
        kernel.data[(h * size + i) * size + j] = shown[centre + (i - before) * nColumns + j - before];
        for (let query = 0; query < n; query++) {
          const row = Math.min(Math.max(Math.floor(query / nColumns) + i - before, 0), nRows - 1);
          const column = Math.min(Math.max((query % nColumns) + j - before, 0), nColumns - 1);
          table.data[(h * n + query) * n + row * nColumns + column] += weight;
        }
      }
  }
  return { kernel, singlePixel, table, errorBound: errorBoundOf(heads, table, weights[`${name}.out.weight`], nHeads) };
}

// For pixels in [-1, 1] an output is off by at most the misplaced weight of each head times the 1-norm of its row of W.
function errorBoundOf(heads, table, out, nHeads) {
  const [nOut, nIn] = out.shape;
  const [, n] = heads.shape;
  const width = nIn / nHeads;
  const norms = tensor([nOut, nHeads]);
  out.data.forEach((number, i) => (norms.data[Math.floor(i / width)] += Math.abs(number)));
  let worst = 0;
  for (let query = 0; query < n; query++) {
    const misplaced = Array.from({ length: nHeads }, (_, h) => {
      const start = (h * n + query) * n;
      let sum = 0;
      for (let key = start; key < start + n; key++) sum += Math.abs(heads.data[key] - table.data[key]);
      return sum;
    });
    for (let o = 0; o < nOut; o++) {
      const off = misplaced.reduce((sum, each, h) => sum + each * norms.data[o * nHeads + h], 0);
      worst = Math.max(worst, off);
    }
  }
  return worst;
}
