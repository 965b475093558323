// What a head mostly looks at, in words, so that the interesting ones are found.
import { percent } from "./dom.js";
import { words } from "./words.js";

const PLACES = { itself: "itself", before: "the token before", after: "the token after", first: "the first token", last: "the last token" };
const MUCH = 0.25; // of a row: less is not what a head is there for
const SHARP = 0.4;
const SPREAD = { place: "spread out", share: null };

// {place, share: what it looks at most, sentence: all of it} of one head of a reading.
export function lookOf({ described, reading, attention, head }) {
  return described.image ? inImage(described.image, reading, attention, head) : inText(reading, attention, head);
}

function inText({ header }, attention, head) {
  const shares = header.shares?.[attention];
  if (!shares) return {};
  const found = Object.keys(PLACES).filter((name) => shares[name]).map((name) => [name, Number(shares[name][head])]).sort((a, b) => b[1] - a[1]);
  const strongest = Number(shares.strongest[head]);
  const listed = found.filter(([, each]) => each >= 0.01).map(([each, value]) => `${percent(value)} to ${PLACES[each]}`).join(", ");
  const average = `On average a row gives ${listed ? `${listed}; ` : ""}${percent(strongest)} to whichever token it looks at most.`;
  if (header.row !== null) return fromRow(header, attention, head, average);
  const [name, share] = found[0];
  const most = share >= MUCH ? { place: PLACES[name].replace("the ", ""), share } : strongest >= SHARP ? { place: "one token", share: strongest } : SPREAD;
  return { ...most, sentence: average };
}

// Seen from the token that the answer is read from.
function fromRow({ row, most, sequences }, attention, head, average) {
  const [key, share] = [most[attention].key[head], Number(most[attention].weight[head])];
  const [from, to] = [row, key].map((i) => words.quote(sequences[0].strings[i]));
  const near = { [row]: "itself", [row - 1]: "token before", [row + 1]: "token after" }[key] ?? (key === 0 ? "first token" : null);
  const what = key === row ? "itself" : near ? `${to}, the ${near}` : to;
  return { ...(share >= MUCH ? { place: near ?? to, share } : SPREAD), sentence: `${from}, from which the answer is read, gives ${percent(share)} to ${what}. ${average}` };
}

function inImage({ n_extra, grid }, reading, attention, head) {
  const looks = reading.arrays[`looks.${attention}`];
  if (!looks) return {};
  const n = looks.shape[1];
  const row = looks.data.subarray(head * n, (head + 1) * n);
  const own = n_extra ? 0 : Math.floor(grid[0] / 2) * grid[1] + Math.floor(grid[1] / 2);
  let best = own === n_extra ? n_extra + 1 : n_extra;
  for (let i = n_extra; i < n; i++) if (i !== own && row[i] > row[best]) best = i;
  const most = row[own] >= MUCH && row[own] >= row[best] ? { place: "itself", share: row[own] } : row[best] >= 2.5 / n ? { place: "one patch", share: row[best] } : SPREAD;
  const names = reading.header.sequences[0].strings;
  const from = n_extra ? "The class token" : "The patch in the middle";
  return { ...most, sentence: `${from} gives ${percent(row[own])} to itself, and most of the rest, ${percent(row[best])}, to the patch in ${names[best]}.` };
}
