// Put what a second input gives, at one place after the other, into the first; see how much the answer moves.
import { h, put } from "../dom.js";
import { Heatmap } from "../heatmap.js";
import { pane } from "../pane.js";
import { words } from "../words.js";

export function whatifPane(context) {
  const { described, store, session, newLive } = context;
  const map = new Heatmap({ label: "change of the answer, by place", largest: 36, most: 520, onPoint: (row, column) => point(row, column) });
  const note = h("p", { class: "note", "aria-live": "polite" });
  let found = null; // {header, values, shape}
  let rows = [];
  const live = newLive(
    "effects",
    ({ header, arrays }) => {
      const columns = Math.max(arrays.metric.shape[0], found?.shape[1] ?? 0);
      if (!found || found.shape[1] !== columns) {
        const old = rows;
        found = { header, values: new Float32Array(header.names.length * columns).fill(NaN), shape: [header.names.length, columns] };
        old.forEach((row, i) => found.values.set(row, i * columns));
      }
      const row = arrays.metric.data.map((v) => v - header.own);
      rows[header.row] = row;
      found.values.set(row, header.row * columns);
      found.header = header;
      note.textContent = `The score of ${header.name} is ${header.own.toFixed(2)} for the first input and ${header.other.toFixed(2)} for the second. Row ${header.row + 1} of ${header.names.length}.`;
      draw();
    },
    (sentence) => (note.textContent = sentence),
  );

  function picture() {
    if (!found) return null;
    const { header, values, shape } = found;
    let high = 1e-6;
    for (const v of values) if (Math.abs(v) > high) high = Math.abs(v);
    const strings = store.get("reading")?.header.sequences.at(-1).strings ?? [];
    const columnNames = header.axis === "head" ? Array.from({ length: shape[1] }, (_, i) => `head ${i}`) : strings.slice(0, shape[1]);
    const describe = (row, column) => {
      const v = values[row * shape[1] + column];
      return Number.isFinite(v) ? `${header.names[row]}, ${columnNames[column]}: the score of ${header.name} moves by ${v >= 0 ? "+" : ""}${v.toPrecision(3)}` : `${header.names[row]}, ${columnNames[column]}: not computed`;
    };
    return { title: `What if: change of the score of ${header.name}`, values, shape, rowNames: header.names, columnNames, high, signed: true, describe };
  }
  const draw = () => map.draw(picture());
  function point(row, column) {
    if (row === null || !found) return store.set({ hover: null });
    if (found.header.axis === "token") store.set({ hover: { sequence: described.input === "text pair" ? 1 : 0, token: column } });
  }

  const other = () => store.get("other");
  const field = described.input === "image" ? imageField() : textField();
  function textField() {
    const area = h("textarea", {
      rows: 2,
      spellcheck: false,
      oninput: () => {
        const value = described.has_tokenizer ? { text: area.value } : { ids: area.value.split(/[\s,]+/).filter(Boolean).map(Number) };
        const { target, target_ids } = store.get("input");
        const sequences = store.get("reading")?.header.sequences;
        if (described.input === "text pair") value.target_ids = target_ids ?? sequences?.[1].ids ?? target;
        store.set({ other: value });
      },
    });
    const show = () => {
      if (area !== document.activeElement) area.value = other() ? (other().text ?? (other().ids ?? []).join(" ")) : "";
    };
    show();
    store.on(["other"], show);
    return h("label", { class: "field" }, h("span", {}, "The second input, with as many tokens as the first"), area);
  }
  function imageField() {
    const seen = h("span", { class: "note" });
    const show = () => (seen.textContent = other() ? "The second input is kept: now draw the first." : "Draw the second input, then keep it with this button, then draw the first.");
    show();
    store.on(["other"], show);
    return h("p", { class: "row" }, h("button", { type: "button", onclick: () => store.set({ other: store.get("input") }) }, "Keep this image as the second input"), seen);
  }
  const start = h("button", {
    type: "button",
    onclick: () => {
      if (!other()) return (note.textContent = "There is no second input yet.");
      found = null;
      rows = [];
      note.textContent = words.thinking;
      live.question({ question: "Effects", about: session.about(), other: other(), axis: store.get("axis") });
    },
  }, "Compute");
  const axis = (value, label) => {
    const input = h("input", { type: "radio", name: "hw-axis", value, checked: store.get("axis") === value, onchange: () => store.set({ axis: value }) });
    return h("label", { class: "tick" }, input, label);
  };
  store.on(["repaint"], () => found && draw());
  return pane(
    "whatif",
    words.whatif,
    words.whatifAbout,
    picture,
    field,
    h("div", { class: "row", role: "group", "aria-label": "what is put in" }, axis("head", "one head at a time"), axis("token", "one token of one layer at a time"), start, h("button", { type: "button", onclick: () => live.stop() }, "Stop")),
    note,
    map.element,
  );
}
