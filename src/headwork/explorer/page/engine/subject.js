import { Refused } from "../ask.js";
import { Reader } from "./generating.js";
import { Model } from "./model.js";
import { bestFirst } from "./sampling.js";
import { tensor } from "./tensor.js";
import { Tokens } from "./tokens.js";
import { readWeights } from "./weights.js";

// Whether a translator is given no target: then it writes one.
export const writesItself = (given) => given.target == null && given.target_ids == null && given.example == null;

// The model of a page, with what it takes to read a text or an image for it and to name its answers. `data` is what
// living.py has put into the page; `about` is its description, as the answer to Describe has it.
export class Subject {
  constructor(data) {
    this.model = new Model(data.config, readWeights(data.weights));
    this.tokens = data.tokens ? new Tokens(data.tokens) : null;
    this.about = data.about;
    this.begin = data.begin ?? 0;
    this.end = data.end ?? [];
    this.examples = data.examples ?? {};
  }

  // { input for Model.run, sequences for the page, pixels, nUnknown } of an Input of the protocol. A translation that is not
  // given is written by the model with these settings (as for Model.run), so without the heads that are off.
  encode(given = {}, settings = {}) {
    if (given.example != null) return this.encode(this.example(given.example));
    if (this.about.input === "image") return this.encodeImage(given.pixels);
    const isPair = this.about.input === "text pair";
    const [source, nUnknown] = this.idsOf(given.text, given.ids, isPair ? "source" : "text");
    if (!isPair) return { input: { ids: source }, sequences: [this.sequence("tokens", source)], nUnknown };
    let [target, more] = [[], 0];
    if (writesItself(given)) target = this.translate(source, settings);
    else if (given.target !== "") [target, more] = this.idsOf(given.target, given.target_ids, "target");
    if (given.target_ids == null) target = [this.begin, ...target];
    const sequences = [this.sequence("source", source), this.sequence("target", target)];
    return { input: { source, target }, sequences, nUnknown: nUnknown + more };
  }

  example(number) {
    const n = Object.keys(this.examples).length;
    if (!(number in this.examples)) throw new Refused(`This page has ${n} examples, and number ${number} is not among them.`);
    return this.examples[number];
  }

  encodeImage(pixels) {
    const { size, channels, grid, n_extra: nExtra } = this.about.image;
    const shape = [channels, ...size];
    if (pixels?.length !== channels * size[0] * size[1])
      throw new Refused(`The image must have ${shape.join(" x ")} numbers, got ${pixels ? `${pixels.length} numbers` : "none"}.`);
    const image = tensor(shape, Float32Array.from(pixels));
    const nameOfPatch = (i) => `row ${Math.floor(i / grid[1]) + 1}, column ${(i % grid[1]) + 1}`;
    const patches = Array.from({ length: grid[0] * grid[1] }, (_, i) => nameOfPatch(i));
    const strings = [...["class token", "distillation token"].slice(0, nExtra), ...patches];
    return { input: { image }, sequences: [{ name: "patches", strings, ids: [] }], pixels: image, nUnknown: 0 };
  }

  // The ids of a text, or those that were typed, and how many of them the tokenizer does not know.
  idsOf(text, typed, what) {
    const vocab = what === "target" ? this.about.n_outputs : this.about.vocab;
    const most = this.about.limits.tokens;
    if (typed == null && text == null) throw new Refused(`${what} must be given, as a text or as ids`);
    if (typed == null && !this.tokens) throw new Refused(`This model has no tokenizer: type the ids of its tokens, 0 .. ${vocab - 1}.`);
    const ids = typed ?? this.encodeText(text);
    if (!ids.length) throw new Refused(`The ${what} is empty: type something for the model to read.`);
    const wrong = ids.find((id) => !(Number.isInteger(id) && id >= 0 && id < vocab));
    if (wrong !== undefined) throw new Refused(`Ids must lie in 0 .. ${vocab - 1}, got ${wrong}.`);
    if (ids.length > most) throw new Refused(`The ${what} is too long: it has ${ids.length} tokens, and this model can read ${most} at most. Take ${ids.length - most} away; nothing was cut off.`);
    return [ids, typed ? 0 : ids.filter((id) => id === 3).length];
  }

  encodeText(text) {
    const ids = this.tokens.encode(text);
    return this.about.output === "class" && text ? [1, ...ids] : ids; // a classifier reads "begin" first
  }

  // What the model says of a source after what is begun, always the likeliest token, without its end.
  translate(source, settings, begun = []) {
    const most = Math.min(this.about.max_tokens ?? Infinity, 2 * source.length + 20, this.about.limits.tokens) - 1 - begun.length;
    const reader = new Reader(this.model, { source }, settings);
    const said = [];
    while (said.length < most) {
      const id = bestFirst(reader.read([this.begin, ...begun, ...said]))[0];
      if (this.end.includes(id)) break;
      said.push(id);
    }
    return said;
  }

  sequence(name, ids) {
    return { name, strings: this.strings(ids), ids: [...ids] };
  }

  strings(ids) {
    return this.tokens ? this.tokens.strings(ids) : ids.map(String);
  }

  decode(ids) {
    return this.tokens ? this.tokens.decode(ids) : ids.join(" ");
  }

  // An output of the model in words.
  nameOf(id) {
    if (["next token", "masked token"].includes(this.about.output)) return this.strings([id])[0];
    return this.about.labels?.[id] ?? String(id);
  }
}
