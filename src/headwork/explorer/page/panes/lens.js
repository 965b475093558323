// What each layer would answer: token by token, or patch by patch.
import { tint } from "../colours.js";
import { h, on, percent, put, scrolling, times } from "../dom.js";
import { pane } from "../pane.js";
import { words } from "../words.js";

const MOST_COLUMNS = 128;

export function lensPane(context) {
  const { described, store, session, newLive, whenShown } = context;
  const body = h("div.lens");
  const says = h("p.says", { "aria-live": "polite" });
  let found = null;
  const live = newLive("lens", (part) => (put(says), show((found = part))), body);
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

  // Layers by columns: cells[layer] are those of one layer.
  function table(label, columns, cells, caption) {
    const head = h("tr", h("th", { scope: "col" }, "layer"), columns);
    const rows = cells.map((each, layer) => h("tr", h("th", { scope: "row" }, layer === cells.length - 1 ? words.theAnswer(layer) : String(layer)), each));
    return scrolling(label, h("table.lens-table", caption ? h("caption", caption) : null, h("thead", head), h("tbody", rows)));
  }

  function overTokens(part, reading) {
    const [layers, tokens] = part.arrays.ids.shape;
    const strings = reading.header.sequences[last()].strings;
    const from = Math.max(0, tokens - MOST_COLUMNS);
    const shown = times(tokens - from, (i) => from + i);
    const answerAt = (layer, t) => {
      const [best] = cell(part, layer, t);
      const td = h("td", { "data-token": t, tabIndex: -1, title: listed(part, layer, t).join("\n") }, best.name);
      tint(td, best.p);
      on(td, "pointerenter", () => (tell(part, layer, t), store.set({ hover: { sequence: last(), token: t } })));
      return td;
    };
    const columns = shown.map((t) => h("th", { scope: "col", "data-token": t }, strings[t]));
    const note = from ? h("p.note", `The last ${shown.length} of ${tokens} tokens.`) : null;
    return [part.arrays.whole ? wholeTable(part) : null, table("the lens, layer by token", columns, times(layers, (layer) => shown.map((t) => answerAt(layer, t)))), note, says];
  }

  function wholeTable(part) {
    const { data, shape } = part.arrays.whole;
    const columns = times(Math.min(shape[1], 12), (c) => h("th", { scope: "col" }, described.labels?.[c] ?? String(c)));
    const share = (layer, c) => {
      const p = data[layer * shape[1] + c];
      const td = h("td", p >= 0.005 ? (100 * p).toFixed(0) : "");
      tint(td, p);
      return td;
    };
    return table("classes by layer", columns, times(shape[0], (layer) => columns.map((_, c) => share(layer, c))), "On the whole, in percent");
  }

  function overPatches(part) {
    const { grid, n_extra } = described.image;
    const [layers] = part.arrays.ids.shape;
    const grids = times(layers, (layer) => {
      const cells = times(grid[0] * grid[1], (i) => {
        const [best] = cell(part, layer, i + n_extra);
        const element = h("span.lens-patch", { "data-token": i + n_extra, title: `${best.name} ${percent(best.p)}` }, grid[1] <= 16 ? best.name : "");
        tint(element, best.p);
        on(element, "pointerenter", () => (tell(part, layer, i + n_extra), store.set({ hover: { sequence: 0, token: i + n_extra } })));
        return element;
      });
      const box = h("div.lens-grid", { role: "img", "aria-label": `layer ${layer}, row by row: ${cells.slice(0, 64).map((each) => each.textContent).join(" ")}` }, cells);
      box.style.gridTemplateColumns = `repeat(${grid[1]}, 1fr)`;
      return h("figure", box, h("figcaption", `layer ${layer}`));
    });
    return [wholeTable(part), h("p.note", "From each patch alone:"), h("div.lens-layers", grids), says];
  }

  const numbers = () => {
    if (!found) return null;
    const [layers, tokens, top] = found.arrays.ids.shape;
    const values = Float32Array.from({ length: layers * tokens }, (_, i) => found.arrays.probabilities.data[i * top]);
    return { title: "Lens: probability of the best answer", values, shape: [layers, tokens], rowNames: times(layers, (i) => `layer ${i}`), columnNames: store.get("reading").header.sequences[last()].strings, high: 1 };
  };
  whenShown(() => live.question({ question: "Lens", about: session.asked }));
  return pane("lens", words.lens, words.lensAbout[described.input === "image" ? "image" : "text"], numbers, body);
}
