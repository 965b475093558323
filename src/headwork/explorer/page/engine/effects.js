import { Refused } from "../ask.js";
import { putHead, putToken, together } from "./edits.js";
import { memoryOf } from "./lens.js";
import { positionOf, readingOf, scoresAt } from "./reading.js";
import { bestFirst } from "./sampling.js";
import { tensor } from "./tensor.js";

// How much an answer moves if one place (a head of an attention, or a token behind a layer) gets the value that another
// input gives there: one part for each row, `pause` between the forward passes.
export async function* answerEffects(subject, { about, other, axis = "head", answer: wanted = null }, pause) {
  const here = readingOf(subject, about);
  const position = positionOf(subject, here);
  const scores = scoresAt(here, position);
  const answer = wanted ?? bestFirst(scores)[0];
  if (!(answer >= 0 && answer < scores.length)) throw new Refused(`answer must lie in 0 .. ${scores.length - 1}, got ${answer}`);
  const there = readingOf(subject, { ...about, input: other });
  here.encoded.sequences.forEach((sequence, i) => {
    const [mine, theirs] = [sequence.strings.length, there.encoded.sequences[i].strings.length];
    if (mine !== theirs)
      throw new Refused(`Both inputs must have as many tokens: this one has ${mine}, the second ${theirs}. Change the second until they match.`);
  });
  const metric = (reading) => scoresAt(reading, position)[answer];
  if (metric(here) === metric(there)) throw new Refused("Both inputs give the same answer: change the second one.");

  const rows = axis === "head" ? headRows(subject, there) : tokenRows(subject, there);
  const names = rows.map((row) => row.short);
  const header = { axis, answer, name: subject.nameOf(answer), names, own: scores[answer], other: metric(there), position };
  for (const [row, { name, layer, edits: ofRow }] of rows.entries()) {
    const values = tensor([ofRow.length]);
    for (const [column, edit] of ofRow.entries()) {
      await pause();
      const edits = together(onlyFrom(layer, subject, here.settings.edits), { [name]: edit });
      const settings = { ...here.settings, edits, resume: resumeAt(layer, subject, here.points) };
      values.data[column] = metric(subject.model.run(here.encoded.input, settings));
    }
    yield { header: { ...header, row }, arrays: { metric: values } };
  }
}

// The heads of each attention: { short, name of the point, layer it is in, an edit for each column }.
function headRows(subject, there) {
  return subject.about.attention.map(({ name, short, n_heads: nHeads, stack, layer }) => {
    const value = there.points[`${name}.heads`];
    const edits = Array.from({ length: nHeads }, (_, head) => putHead(value, head));
    return { short, name: `${name}.heads`, layer: `${stack}.${layer}`, edits };
  });
}

// The tokens behind each layer.
function tokenRows(subject, there) {
  return subject.about.all_layers.map((name) => {
    const value = there.points[name];
    const edits = Array.from({ length: value.shape[0] }, (_, token) => putToken(value, token));
    return { short: name.replaceAll(".", " "), name, layer: name, edits };
  });
}

// What is before the layer has not changed: the run goes on there, with what that layer reads.
function resumeAt(name, subject, points) {
  const [stackName, layer] = [name.slice(0, name.lastIndexOf(".")), Number(name.slice(name.lastIndexOf(".") + 1))];
  const before = stackName === "encoder_layers" ? {} : memoryOf(subject, points);
  if (layer > 0) before[stackName] = { layer, x: points[`${stackName}.${layer - 1}`] };
  return before;
}

// The edits at points that are passed when the run goes on at this layer.
function onlyFrom(name, subject, edits) {
  const layers = subject.about.all_layers;
  const passed = layers.slice(layers.indexOf(name));
  return Object.fromEntries(Object.entries(edits).filter(([point]) => passed.some((layer) => point.startsWith(`${layer}.`))));
}
