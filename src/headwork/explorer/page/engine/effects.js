import { Refused } from "../ask.js";
import { putHead, putToken, together } from "./edits.js";
import { memoryOf } from "./lens.js";
import { positionOf, readingOf, scoresAt } from "./reading.js";
import { bestFirst, softmax } from "./sampling.js";
import { writesItself } from "./subject.js";
import { tensor } from "./tensor.js";

// How much an answer moves if one place (a head of an attention, or a token behind a layer) gets the value that another
// input gives there: one part for each row, `pause` between the forward passes.
export async function* answerEffects(subject, { about, other, axis = "head", answer: wanted = null }, pause) {
  [about, other] = withOneTarget(subject, about, other);
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
  const said = (reading) => {
    const found = scoresAt(reading, position);
    const [chances, best] = [softmax(found), bestFirst(found)[0]];
    return { name: subject.nameOf(best), probability: chances[best], logit: found[answer], share: chances[answer] };
  };
  const [own, theirs] = [said(here), said(there)];
  if (own.logit === theirs.logit) throw new Refused("Both inputs give the same answer: change the second one.");

  const rows = axis === "head" ? headRows(subject, there) : tokenRows(subject, there);
  const names = rows.map((row) => row.short);
  const begun = here.encoded.input.target ? subject.decode(here.encoded.input.target.slice(1)) : null;
  const header = { axis, answer, name: subject.nameOf(answer), names, own, other: theirs, position, begun };
  for (const [row, { name, layer, sequence, edits: ofRow }] of rows.entries()) {
    const [metric, share] = [tensor([ofRow.length]), tensor([ofRow.length])];
    const names = [];
    for (const [column, edit] of ofRow.entries()) {
      await pause();
      const edits = together(onlyFrom(layer, subject, here.settings.edits), { [name]: edit });
      const settings = { ...here.settings, edits, resume: resumeAt(layer, subject, here.points) };
      const moved = said(subject.model.run(here.encoded.input, settings));
      [metric.data[column], share.data[column]] = [moved.logit, moved.share];
      names.push(moved.name);
    }
    yield { header: { ...header, row, sequence, said: names }, arrays: { metric, share } };
  }
}

// Translations are compared with one target: the one that is given, or up to where the model's own two differ.
function withOneTarget(subject, about, other) {
  if (subject.about.input !== "text pair" || !writesItself(other)) return [about, other];
  const { target = null, target_ids = null } = about.input;
  if (!writesItself(about.input)) return [about, { ...other, target, target_ids }];
  const [first, second] = [about.input, other].map((input) => readingOf(subject, { ...about, input }).encoded.input.target);
  if (String(first) === String(second)) throw new Refused("Both inputs give the same translation: change the second one.");
  let same = 0;
  while (same < first.length && first[same] === second[same]) same++;
  const withTarget = (input) => ({ ...input, target_ids: first.slice(0, same) });
  return [{ ...about, input: withTarget(about.input) }, withTarget(other)];
}

// The heads of each attention: { short, sequence of its rows, name of the point, layer it is in, an edit for each column }.
function headRows(subject, there) {
  return subject.about.attention.map(({ name, short, n_heads: nHeads, stack, layer, query: sequence }) => {
    const value = there.points[`${name}.heads`];
    const edits = Array.from({ length: nHeads }, (_, head) => putHead(value, head));
    return { short, sequence, name: `${name}.heads`, layer: `${stack}.${layer}`, edits };
  });
}

// The tokens behind each layer.
function tokenRows(subject, there) {
  return subject.about.all_layers.map((name) => {
    const value = there.points[name];
    const edits = Array.from({ length: value.shape[0] }, (_, token) => putToken(value, token));
    const known = subject.about.attention.find((each) => each.kind === "self" && `${each.stack}.${each.layer}` === name);
    return { short: known?.short ?? name.replaceAll(".", " "), sequence: known?.query ?? 0, name, layer: name, edits };
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
