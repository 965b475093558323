import { Refused } from "../ask.js";
import { movedWeights, switchOff } from "./edits.js";
import { bestFirst, softmax } from "./sampling.js";
import { writesItself } from "./subject.js";
import { reshape, slice, tensor } from "./tensor.js";

const thumbnailSize = 64;
const mostShown = 64;
const largestTensor = 256;
const kept = new WeakMap(); // the newest forward passes of each subject, so that a closer look costs nothing

// The forward pass that `about` of a question asks for: { encoded, settings, logits, points, seconds, continuation }. The last
// is what the model adds to a translation that was given; null if there is none, or the model wrote all of it.
export function readingOf(subject, about = {}) {
  const key = JSON.stringify(about);
  const readings = kept.get(subject) ?? kept.set(subject, new Map()).get(subject);
  if (!readings.has(key)) {
    const settings = settingsOf(subject, about);
    const encoded = subject.encode(about.input, settings);
    const start = performance.now();
    const passed = subject.model.run(encoded.input, settings);
    const seconds = (performance.now() - start) / 1000;
    const { source, target } = encoded.input;
    const continuation = target && !writesItself(about.input) ? subject.translate(source, settings, target.slice(1)) : null;
    readings.set(key, { encoded, settings, ...passed, seconds, continuation });
    if (readings.size > 3) readings.delete(readings.keys().next().value);
  }
  return readings.get(key);
}

// The heads that are off, and those that were moved, as settings for Model.run.
export function settingsOf(subject, { off = [], moved = [], checkpoint = null, model = 0 }) {
  if (checkpoint !== null) throw new Refused("This page holds one checkpoint only: explore the run to see the others.");
  if (model !== 0) throw new Refused(`model must lie in 0 .. 0, got ${model}`);
  const byName = {};
  for (const [attention, head] of off) {
    const found = subject.about.attention[attention];
    if (!(head >= 0 && head < found?.n_heads)) throw new Refused(`There is no head ${head} in attention ${attention} to switch off.`);
    (byName[`${found.name}.heads`] ??= []).push(head);
  }
  const edits = Object.fromEntries(Object.entries(byName).map(([name, heads]) => [name, switchOff(heads)]));
  const moves = moved.map(({ attention, head, centre, alpha }) => {
    const found = subject.about.gaussian.find((each) => each.attention === attention);
    if (!found?.alpha[head]) throw new Refused(`There is no Gaussian head ${head} in attention ${attention} to move.`);
    if (!(alpha > 0 && alpha <= 1e4)) throw new Refused(`alpha must lie in (0, 10000], got ${alpha}`);
    if (!centre.every((number) => Math.abs(number) <= 1000)) throw new Refused(`a centre must lie within 1000 patches, got ${centre}`);
    return { name: subject.about.attention[attention].name, head, centre, alpha };
  });
  return { edits, weights: movedWeights(subject.model.weights, moves) };
}

// After which token the answer is: the wanted one, the last, or the first that is masked; null: of the whole.
export function positionOf(subject, { logits, encoded }, wanted = null) {
  if (logits.shape.length === 1) return null;
  const { ids, strings } = encoded.sequences.at(-1);
  if (wanted !== null) {
    if (!(wanted >= 0 && wanted < ids.length)) throw new Refused(`position must lie in 0 .. ${ids.length - 1}, got ${wanted}`);
    return wanted;
  }
  const masked = subject.about.output === "masked token" ? strings.indexOf("<mask>") : -1;
  return masked >= 0 ? masked : ids.length - 1;
}

export function scoresAt({ logits }, position) {
  return position === null ? logits.data : slice(logits, position, position + 1).data;
}

// The weights of an attention, [head, query, key]; those over a grid row by row.
export function weightsOf(subject, reading, number) {
  const weights = reading.points[`${subject.about.attention[number].name}.weights`];
  const [nHeads, ...axes] = weights.shape;
  return axes.length === 2 ? weights : reshape(weights, [nHeads, axes[0] * axes[1], axes[2] * axes[3]]);
}

export function answerRead(subject, { about, position: wanted = null }) {
  const reading = readingOf(subject, about);
  const { encoded } = reading;
  const position = positionOf(subject, reading, wanted);
  const scores = scoresAt(reading, position);
  const arrays = { logits: { shape: [scores.length], data: scores } };
  if (encoded.pixels) arrays.pixels = encoded.pixels;
  const [shares, most] = [[], []];
  const row = encoded.sequences.length > 1 || subject.about.output === "hidden state" ? null : (position ?? (subject.about.pools_first ? 0 : null));
  subject.about.attention.forEach((attention, number) => {
    const weights = weightsOf(subject, reading, number);
    const peaks = (arrays[`peaks.${number}`] = peaksOf(weights));
    if (encoded.pixels) arrays[`looks.${number}`] = looksOf(subject, weights);
    else {
      arrays[`thumbnails.${number}`] = thumbnailsOf(weights, peaks);
      shares.push(sharesOf(weights, attention));
      if (row !== null) most.push(mostOf(weights, row));
    }
  });
  const { sequences, nUnknown } = encoded;
  const answer = { kind: subject.about.output, position, top: bestAnswers(subject, scores) };
  const header = { sequences, n_unknown: nUnknown, seconds: reading.seconds, answer, finite: scores.every(Number.isFinite) };
  if (shares.length) Object.assign(header, { shares, row, most });
  if (sequences.length > 1) {
    header.translation = subject.decode(sequences[1].ids.slice(1));
    header.continuation = reading.continuation && subject.decode(reading.continuation);
  }
  return { header, arrays };
}

function bestAnswers(subject, scores) {
  if (subject.about.output === "hidden state") return [];
  const chances = softmax(scores);
  const best = bestFirst(scores).slice(0, mostShown);
  return best.map((id) => ({ id, name: subject.nameOf(id), logit: scores[id], probability: chances[id] }));
}

export function answerMap(subject, { about, attention, head }) {
  if (!(head >= 0 && head < subject.about.attention[attention]?.n_heads)) throw new Refused(`There is no head ${head} in attention ${attention}.`);
  const weights = slice(weightsOf(subject, readingOf(subject, about), attention), head, head + 1);
  const shape = weights.shape.slice(1);
  const block = Math.ceil(Math.max(...shape) / subject.about.limits.map);
  const shown = inBlocks(weights, [block, block]);
  return { header: { attention, head, block, shape }, arrays: { weights: reshape(shown, shown.shape.slice(1)) } };
}

export function answerTensor(subject, { about, name }) {
  const { points } = readingOf(subject, about);
  if (!(name in points)) throw new Refused(`'${name}' is not recorded.`);
  const value = points[name];
  const [nRows, nColumns] = value.shape.length < 2 ? [1, value.data.length] : value.shape.slice(-2);
  const shown = tensor([Math.min(nRows, largestTensor), Math.min(nColumns, largestTensor)]);
  const [, width] = shown.shape;
  shown.data.forEach((_, i) => (shown.data[i] = value.data[Math.floor(i / width) * nColumns + (i % width)]));
  const over = (start, rule) => value.data.reduce(rule, start);
  const mean = over(0, (sum, number) => sum + number) / value.data.length;
  const deviation = Math.sqrt(over(0, (sum, number) => sum + (number - mean) ** 2) / value.data.length);
  const [low, high] = [over(Infinity, (a, b) => Math.min(a, b)), over(-Infinity, (a, b) => Math.max(a, b))];
  const isTable = /attention\.weights$/.test(name) && value.shape.length === 5; // the only one without a batch axis in PyTorch
  const shape = isTable ? value.shape : [1, ...value.shape];
  return { header: { name, axes: subject.about.axes?.[name] ?? [], shape, mean, deviation, low, high }, arrays: { values: shown } };
}

// The largest weight of each head.
function peaksOf({ shape: [nHeads], data }) {
  const n = data.length / nHeads;
  const peaks = tensor([nHeads]);
  data.forEach((weight, i) => (peaks.data[Math.floor(i / n)] = Math.max(peaks.data[Math.floor(i / n)], weight)));
  return peaks;
}

// The largest weight of each block as a byte, a share of the head's largest.
function thumbnailsOf(weights, peaks) {
  const [nHeads, ...sizes] = weights.shape;
  const pooled = inBlocks(weights, sizes.map((n) => Math.ceil(n / thumbnailSize)));
  const n = pooled.data.length / nHeads;
  const share = (weight, i) => Math.round((255 * weight) / Math.max(peaks.data[Math.floor(i / n)], 1e-30));
  return { shape: pooled.shape, data: Uint8Array.from(pooled.data, share) };
}

// The largest weight of one row in each head, and to which key.
function mostOf({ shape: [nHeads, nQuery, nKey], data }, row) {
  const rows = Array.from({ length: nHeads }, (_, h) => data.subarray((h * nQuery + row) * nKey, (h * nQuery + row + 1) * nKey));
  const weight = rows.map((each) => each.reduce((a, b) => Math.max(a, b)));
  return { key: rows.map((each, h) => each.indexOf(weight[h])), weight };
}

// The largest weight of each block of so many rows and columns.
function inBlocks(weights, [blockRows, blockColumns]) {
  if (blockRows === 1 && blockColumns === 1) return weights;
  const [nHeads, nRows, nColumns] = weights.shape;
  const small = tensor([nHeads, Math.ceil(nRows / blockRows), Math.ceil(nColumns / blockColumns)]);
  const [, rows, columns] = small.shape;
  for (let h = 0, from = 0; h < nHeads; h++)
    for (let r = 0; r < nRows; r++)
      for (let c = 0; c < nColumns; c++, from++) {
        const to = (h * rows + Math.floor(r / blockRows)) * columns + Math.floor(c / blockColumns);
        small.data[to] = Math.max(small.data[to], weights.data[from]);
      }
  return small;
}

// What share of its weight a row gives to itself, its neighbours and so on, in each head: the mean over the rows, but for the
// first two where there are more, since the token before them is the first or none.
function sharesOf({ shape: [nHeads, nQuery, nKey], data }, { kind }) {
  const start = Math.min(2, nQuery - 1);
  const mean = (columnOf) =>
    Array.from({ length: nHeads }, (_, h) => {
      let [sum, n] = [0, 0];
      for (let i = start; i < nQuery; i++) {
        const column = columnOf(i, (h * nQuery + i) * nKey);
        if (column < 0 || column >= nKey) continue;
        sum += data[(h * nQuery + i) * nKey + column];
        n++;
      }
      return sum / Math.max(n, 1);
    });
  const strongest = (_, from) => {
    let best = 0;
    for (let j = 1; j < nKey; j++) if (data[from + j] > data[from + best]) best = j;
    return best;
  };
  const both = { first: mean(() => 0), strongest: mean(strongest) };
  if (kind === "cross") return { ...both, last: mean(() => nKey - 1) };
  return { ...both, itself: mean((i) => i), before: mean((i) => i - 1), after: mean((i) => i + 1) };
}

// Where each head looks in an image: from the class token, or from the patch in the middle. [head, key]
function looksOf(subject, weights) {
  const [nHeads, nQuery, nKey] = weights.shape;
  const { n_extra, grid } = subject.about.image;
  const query = n_extra ? 0 : Math.min(Math.floor(grid[0] / 2) * grid[1] + Math.floor(grid[1] / 2), nQuery - 1);
  const looks = tensor([nHeads, nKey]);
  for (let h = 0; h < nHeads; h++)
    for (let j = 0; j < nKey; j++) looks.data[h * nKey + j] = weights.data[(h * nQuery + query) * nKey + j];
  return looks;
}
