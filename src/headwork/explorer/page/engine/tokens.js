// Text as numbers and back, as headwork's tokenizer of characters or of words does it; ids 0 to 3 are pad, begin, end, unknown.
const unknownId = 3;
const signs = { " ": "␣", "\n": "↵", "\t": "⇥" };
// What is a letter of a word in the regular expressions of Rust, in which the tokenizers are written.
const words = /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}\s]+/gu;

export class Tokens {
  // kind: "characters" or "words"; strings: the token of each id.
  constructor({ kind, strings }) {
    this.kind = kind;
    this.all = strings;
    // No text can spell pad, begin and end.
    this.ids = new Map(strings.flatMap((string, id) => (id < unknownId ? [] : [[string, id]])));
  }

  encode(text) {
    const pieces = this.kind === "characters" ? [...text] : (text.toLowerCase().match(words) ?? []);
    return pieces.map((piece) => this.ids.get(piece) ?? unknownId);
  }

  // The text of the ids; pad, begin and end say nothing.
  decode(ids) {
    const spoken = ids.filter((id) => id >= unknownId).map((id) => this.all[id] ?? this.all[unknownId]);
    return spoken.join(this.kind === "characters" ? "" : " ");
  }

  // Each token by itself: spaces and line ends have a sign.
  strings(ids) {
    return ids.map((id) => (id <= unknownId ? this.all[id] : this.decode([id]).replace(/[ \n\t]/g, (sign) => signs[sign])));
  }
}
