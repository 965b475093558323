// What the model reads: a text in tokens, a source and a target, or an image to draw; and what it answers.
import { bars } from "../bars.js";
import { tint } from "../colours.js";
import { h, percent, put } from "../dom.js";
import { pane } from "../pane.js";
import { saidBy } from "../said.js";
import { words } from "../words.js";
import { drawing } from "./drawing.js";
import { examples } from "./examples.js";

export function inputPane(context) {
  const { described } = context;
  const body = described.input === "image" ? drawing(context) : writing(context);
  const more = described.can.includes("Examples") ? examples(context) : null;
  return pane("input", words.input, words.inputAbout[described.input], () => answerNumbers(context), body, described.input === "image" ? problem(context) : null, answer(context), more);
}

function writing({ described, store }) {
  const ids = !described.has_tokenizer;
  const parse = (text) => text.split(/[\s,]+/).filter(Boolean).map(Number).filter(Number.isInteger);
  const fields = described.input === "text pair" ? [["text", "ids", words.source], ["target", "target_ids", words.target]] : [["text", "ids", ids ? words.typeIds : words.typeHere]];
  const areas = fields.map(([text, numbers, label]) => {
    const change = (value) => {
      const input = { ...store.get("input") };
      delete input.example;
      delete input[ids ? text : numbers];
      if (text === "target" && !value.trim()) {
        delete input.target;
        delete input.target_ids;
      } else input[ids ? numbers : text] = ids ? parse(value) : value;
      store.set({ input, query: null });
    };
    const area = h("textarea", { rows: 2, spellcheck: false, autocomplete: "off", oninput: () => change(area.value) });
    const show = () => {
      const input = store.get("input");
      const value = ids ? (input[numbers] ?? []).join(" ") : input[text] ?? "";
      if (area !== document.activeElement || !area.value) area.value = value;
    };
    show();
    store.on(["input"], show);
    return h("label", { class: "field" }, h("span", {}, label), area);
  });
  const chips = fields.map((_, sequence) => tokenRow(sequence, { described, store }));
  const note = h("p", { class: "note" });
  store.on(["reading"], () => {
    const { header } = store.get("reading");
    const n = Math.max(...header.sequences.map((each) => each.strings.length));
    note.textContent = words.limit(n, described.limits.tokens) + (header.n_unknown ? `. ${words.unknown(header.n_unknown)}` : "");
  });
  return h("div", { class: "writing" }, areas, problem({ store }), chips, note);
}

// What is wrong with the input, where it was typed or drawn.
function problem({ store }) {
  const status = h("p", { class: "status error", role: "status" });
  store.on(["error", "notice"], () => {
    const { error, notice, reading } = store.values;
    status.textContent = error ? `${error}${reading ? ` ${words.stale}` : ""}` : (notice ?? "");
  });
  return status;
}

const MOST_CHIPS = 400;

// The tokens of a sequence; coloured by how much the token in question looks at them in the head in focus.
function tokenRow(sequence, { described, store }) {
  const row = h("div", { class: "tokens", role: "group", "aria-label": "tokens" });
  let chips = [];
  const colour = () => {
    const { focus, hover, query, map, reading } = store.values;
    if (!reading) return;
    const attention = focus && described.attention[focus[0]];
    const from = hover?.sequence === attention?.query ? hover.token : (query ?? null);
    const weights = map && map.header.block === 1 && map.arrays.weights;
    const lit = attention && attention.key === sequence && from !== null && weights && from < weights.shape[0] && chips.length <= weights.shape[1] ? weights : null;
    const peak = lit ? Math.max(...lit.data.subarray(from * lit.shape[1], (from + 1) * lit.shape[1]), 1e-9) : 1;
    chips.forEach((chip, i) => {
      if (lit) tint(chip, lit.data[from * lit.shape[1] + i] / peak);
      else Object.assign(chip.style, { background: "", color: "" });
      chip.classList.toggle("hover", hover?.sequence === sequence && hover.token === i);
      chip.setAttribute("aria-pressed", attention?.query === sequence && query === i);
    });
  };
  const build = () => {
    const found = store.get("reading")?.header.sequences[sequence];
    if (!found) return;
    const strings = found.strings.slice(0, MOST_CHIPS);
    if (chips.length === strings.length && chips.every((chip, i) => chip.textContent === strings[i])) return colour();
    chips = strings.map((string, i) =>
      h(
        "button",
        {
          class: "token",
          title: `${found.name} ${i}, id ${found.ids[i]}`,
          onpointerenter: () => store.set({ hover: { sequence, token: i } }),
          onpointerleave: () => store.set({ hover: null }),
          onfocus: () => store.set({ hover: { sequence, token: i } }),
          onblur: () => store.set({ hover: null }),
          onclick: () => store.set({ query: store.get("query") === i ? null : i }),
        },
        string,
      ),
    );
    const left = found.strings.length - strings.length;
    put(row, chips, left > 0 ? h("span", { class: "note" }, `and ${left.toLocaleString("en")} more`) : null);
    colour();
  };
  store.on(["reading"], build);
  store.on(["hover", "query", "map", "focus", "repaint"], colour);
  return row;
}

function answer({ described, store }) {
  const box = h("div", { class: "answer", "aria-live": "polite", "aria-atomic": "true" });
  const isPair = described.input === "text pair";
  const sure = ({ header }) => (isPair ? "" : ` (${percent(header.answer.top[0].probability)})`);
  const strong = (text) => h("strong", {}, text || "(nothing)");
  // What the model says; of a translation that was begun by hand, only what is its own.
  const verdict = (reading) => {
    const { translation, continuation } = reading.header;
    if (!isPair || continuation === null) return [`${isPair ? words.says.class : words.says[described.output]} `, strong(saidBy(reading)), sure(reading)];
    const begun = [store.get("input").target === undefined ? "The target begins with " : "You wrote ", h("b", {}, translation || "nothing yet")];
    return continuation ? [begun, "; the model continues ", strong(continuation)] : [begun, "; the model ends it there"];
  };
  const show = () => {
    const { reading, before, second, off, moved } = store.values;
    if (!reading) return;
    const { answer, finite, sequences } = reading.header;
    const parts = [];
    if (!finite) parts.push(h("p", { class: "error", role: "alert" }, words.notFinite));
    if (answer.kind === "hidden state") return put(box, parts, h("p", {}, words.vector));
    parts.push(h("p", { class: "verdict" }, verdict(reading)));
    if (before && (off.length || moved.length)) parts.push(h("p", { class: "note" }, `${words.changes(off.length, moved.length)}; ${words.withAll}: `, strong(saidBy(before)), sure(before)));
    if (second) parts.push(h("p", { class: "note" }, `${[described.name, described.against][1 - store.get("model")]} says `, strong(saidBy(second)), sure(second)));
    const old = before ? new Map(before.header.answer.top.map((each) => [each.id, each.probability])) : null;
    const isClass = answer.kind === "class" || answer.kind === "token class";
    const shown = isClass ? [...answer.top].sort((a, b) => (answer.top.length <= 12 ? a.id - b.id : 0)).slice(0, 12) : answer.top.slice(0, 5);
    // The text before may be another than this one, and then its next step is too.
    const same = before && String(before.header.sequences.map((each) => each.ids)) === String(sequences.map((each) => each.ids));
    if (answer.kind === "next token") parts.push(h("p", { class: "note" }, words.stepAfter(sequences.at(-1).strings[answer.position])));
    parts.push(bars(shown.map((each) => ({ name: each.name, value: each.probability, before: same ? old.get(each.id) : undefined }))));
    put(box, parts);
  };
  store.on(["reading", "before", "second"], show);
  return h("div", {}, h("h3", {}, words.answer), box);
}

function answerNumbers({ store }) {
  const top = store.get("reading")?.header.answer.top;
  if (!top?.length) return null;
  return { kind: "bars", title: "Answer", rowNames: top.map((each) => each.name), columnNames: ["probability", "logit"], values: Float64Array.from(top.flatMap((each) => [each.probability, each.logit])), shape: [top.length, 2] };
}
