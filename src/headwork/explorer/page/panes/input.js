// What the model reads: a text in tokens, a source and a target, or an image to draw; and what it answers.
import { tint } from "../colours.js";
import { h, put } from "../dom.js";
import { pane } from "../pane.js";
import { words } from "../words.js";
import { answer, answerNumbers } from "./answer.js";
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
  const fields = described.input === "text pair" ? [["text", "ids", words.source], ["target", "target_ids", words.target]] : [["text", "ids", ids ? words.typeIds : words.typeHere]];
  const areas = fields.map(([text, numbers, label]) => {
    const change = (value) => {
      const numbersIn = value.split(/[\s,]+/).filter(Boolean);
      const wrong = ids && numbersIn.find((each) => !Number.isInteger(Number(each)));
      if (wrong) return store.set({ error: words.notAnId(wrong) });
      const input = { ...store.get("input") };
      delete input.example;
      delete input[ids ? text : numbers];
      if (text === "target" && !value.trim()) {
        delete input.target;
        delete input.target_ids;
      } else input[ids ? numbers : text] = ids ? numbersIn.map(Number) : value;
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
    return h("label.field", h("span", label), area);
  });
  const chips = fields.map((_, sequence) => tokenRow(sequence, { described, store }));
  const note = h("p.note");
  store.on(["reading"], () => {
    const { header } = store.get("reading");
    const n = Math.max(...header.sequences.map((each) => each.strings.length));
    note.textContent = words.limit(n, described.limits.tokens) + (header.n_unknown ? `. ${words.unknown(header.n_unknown)}` : "");
  });
  return h("div.writing", areas, problem({ store }), chips, note);
}

// What is wrong with the input, where it was typed or drawn.
function problem({ store }) {
  const status = h("p.status.error", { role: "status" });
  store.on(["error", "notice"], () => {
    const { error, notice, reading } = store.values;
    status.textContent = error ? `${error}${reading ? ` ${words.stale}` : ""}` : (notice ?? "");
  });
  return status;
}

const MOST_CHIPS = 400;

// The tokens of a sequence; coloured by how much the token in question looks at them in the head in focus.
function tokenRow(sequence, { described, store }) {
  const row = h("div.tokens", { role: "group", "aria-label": "tokens" });
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
    put(row, chips, left > 0 ? h("span.note", `and ${left.toLocaleString("en")} more`) : null);
    colour();
  };
  store.on(["reading"], build);
  store.on(["hover", "query", "map", "focus", "repaint"], colour);
  return row;
}
