// What each layer would answer: token by token, or patch by patch.
import { tint } from "../colours.js";
import { h, on, percent, put, times } from "../dom.js";
import { pane } from "../pane.js";
import { words } from "../words.js";

const MOST_COLUMNS = 128;

export function lensPane(context) {
  const { described, store, session, newLive, isShown } = context;
  const body = h("div", { class: "lens" });
  const says = h("p", { class: "says", "aria-live": "polite" });
  let found = null;
  const live = newLive("lens", (part) => (put(says), show((found = part))), (sentence) => put(body, h("p", { class: "error" }, sentence)));
  let asked = null;
  const ask = () => {
    const { reading } = store.values;
    if (!reading || !isShown() || asked === reading) return;
    asked = reading;
    live.question({ question: "Lens", about: session.asked });
  };
  store.on(["reading", "tab"], ask);
  store.on(["repaint"], () => found && show(found));
  store.on(["hover"], () => {
    const token = store.get("hover")?.sequence === last() ? store.get("hover").token : -1;
    for (const cell of body.querySelectorAll("[data-token]")) cell.classList.toggle("hover", Number(cell.dataset.token) === token);
  });
  const last = () => (store.get("reading")?.header.sequences.length ?? 1) - 1;

  function cell(part, layer, token) {
    const [, tokens, top] = part.arrays.ids.shape;
    const at = (layer * tokens + token) * top;
    return times(top, (k) => ({ name: part.header.strings[part.arrays.ids.data[at + k]], p: part.arrays.probabilities.data[at + k] }));
  }

  const listed = (...at) => cell(...at).map(({ name, p }) => `${name} ${percent(p)}`);
  function tell(part, layer, token) {
    says.textContent = `Layer ${layer}, at ${(described.image ? String : words.quote)(store.get("reading").header.sequences[last()].strings[token])}: ${listed(part, layer, token).join(", ")}`;
  }

  function show(part) {
    const { reading } = store.values;
    if (!reading) return;
    put(body, described.input === "image" ? overPatches(part) : overTokens(part, reading));
  }

  function overTokens(part, reading) {
    const [layers, tokens] = part.arrays.ids.shape;
    const strings = reading.header.sequences[last()].strings;
    const from = Math.max(0, tokens - MOST_COLUMNS);
    const shown = times(tokens - from, (i) => from + i);
    const head = h("tr", {}, h("th", { scope: "col" }, "layer"), shown.map((t) => h("th", { scope: "col", "data-token": t }, strings[t])));
    const rows = times(layers, (layer) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, layer === layers - 1 ? words.theAnswer(layer) : String(layer)),
        shown.map((t) => {
          const [best] = cell(part, layer, t);
          const td = h("td", { "data-token": t, tabIndex: -1, title: listed(part, layer, t).join("\n") }, best.name);
          tint(td, best.p);
          on(td, "pointerenter", () => (tell(part, layer, t), store.set({ hover: { sequence: last(), token: t } })));
          return td;
        }),
      ),
    );
    const note = from ? h("p", { class: "note" }, `The last ${shown.length} of ${tokens} tokens.`) : null;
    const whole = part.arrays.whole ? wholeTable(part) : null;
    return [whole, h("div", { class: "scroll", tabIndex: 0, role: "group", "aria-label": "the lens, layer by token" }, h("table", { class: "lens-table" }, h("thead", {}, head), h("tbody", {}, rows))), note, says];
  }

  function wholeTable(part) {
    const { data, shape } = part.arrays.whole;
    const names = times(Math.min(shape[1], 12), (c) => described.labels?.[c] ?? String(c));
    const rows = times(shape[0], (layer) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, layer === shape[0] - 1 ? words.theAnswer(layer) : String(layer)),
        names.map((_, c) => {
          const p = data[layer * shape[1] + c];
          const td = h("td", {}, p >= 0.005 ? (100 * p).toFixed(0) : "");
          tint(td, p);
          return td;
        }),
      ),
    );
    return h("div", { class: "scroll", tabIndex: 0, role: "group", "aria-label": "classes by layer" }, h("table", { class: "lens-table" }, h("caption", {}, "On the whole, in percent"), h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "layer"), names.map((n) => h("th", { scope: "col" }, n)))), h("tbody", {}, rows)));
  }

  function overPatches(part) {
    const { grid, n_extra } = described.image;
    const [layers] = part.arrays.ids.shape;
    const grids = times(layers, (layer) => {
      const cells = times(grid[0] * grid[1], (i) => {
        const [best] = cell(part, layer, i + n_extra);
        const element = h("span", { class: "lens-patch", "data-token": i + n_extra, title: `${best.name} ${percent(best.p)}` }, grid[1] <= 16 ? best.name : "");
        tint(element, best.p);
        on(element, "pointerenter", () => (tell(part, layer, i + n_extra), store.set({ hover: { sequence: 0, token: i + n_extra } })));
        return element;
      });
      const box = h("div", { class: "lens-grid", role: "img", "aria-label": `layer ${layer}, row by row: ${cells.slice(0, 64).map((each) => each.textContent).join(" ")}` }, cells);
      box.style.gridTemplateColumns = `repeat(${grid[1]}, 1fr)`;
      return h("figure", {}, box, h("figcaption", {}, `layer ${layer}`));
    });
    return [wholeTable(part), h("p", { class: "note" }, "From each patch alone:"), h("div", { class: "lens-layers" }, grids), says];
  }

  const numbers = () => {
    if (!found) return null;
    const [layers, tokens, top] = found.arrays.ids.shape;
    const values = Float32Array.from({ length: layers * tokens }, (_, i) => found.arrays.probabilities.data[i * top]);
    return { title: "Lens: probability of the best answer", values, shape: [layers, tokens], rowNames: times(layers, (i) => `layer ${i}`), columnNames: store.get("reading").header.sequences[last()].strings, low: 0, high: 1 };
  };
  ask();
  return pane("lens", words.lens, words.lensAbout[described.input === "image" ? "image" : "text"], numbers, body);
}
