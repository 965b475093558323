// The head in focus: over the tokens, over the patches of the image, or between source and target.
import { h, put } from "../dom.js";
import { Heatmap } from "../heatmap.js";
import { pane } from "../pane.js";
import { words } from "../words.js";
import { PatchMap } from "./patches.js";

export function mapPane({ described, store }) {
  const title = h("p", { class: "focus-name" });
  const matrix = new Heatmap({
    label: "weights of the head in focus, queries by keys",
    most: 560,
    onPoint: (row, column) => {
      const attention = current();
      if (row === null || !attention) store.set({ hover: null });
      else store.set({ hover: { sequence: attention.query, token: row, to: column } });
    },
    onPick: (row) => store.set({ query: store.get("query") === row ? null : row }),
  });
  const patches = described.image ? new PatchMap({ described, store }) : null;
  const scale = h("p", { class: "note" });
  const current = () => store.get("focus") && described.attention[store.get("focus")[0]];

  function data() {
    const { map, reading, focus } = store.values;
    if (!map || !reading || map.header.attention !== focus[0]) return null;
    const { weights } = map.arrays;
    const attention = described.attention[map.header.attention];
    const block = map.header.block;
    const names = (sequence, n) => (block === 1 ? reading.header.sequences[sequence]?.strings : Array.from({ length: n }, (_, i) => `${i * block + 1}-${(i + 1) * block}`));
    const rowNames = names(attention.query, weights.shape[0]) ?? [];
    const columnNames = names(attention.key, weights.shape[1]) ?? [];
    const values = weights.data;
    const columns = weights.shape[1];
    const describe = (row, column) => {
      const w = values[row * columns + column];
      const ofRow = values.subarray(row * columns, (row + 1) * columns);
      let rank = 1;
      for (const other of ofRow) if (other > w) rank++;
      const what = block === 1 ? "gives" : "gives at most";
      return `${rowNames[row]} ${what} ${w.toPrecision(3)} to ${columnNames[column]}, rank ${rank} of ${columns}`;
    };
    let high = 0;
    for (const w of values) if (w > high) high = w;
    return { title: `${attention.short}, head ${map.header.head}`, values, shape: weights.shape, rowNames, columnNames, low: 0, high, describe, block, attention, text: (i) => (values[i] >= 0.005 ? values[i].toFixed(2).replace(/^0/, "") : "") };
  }

  const show = () => {
    const found = data();
    if (!found) return;
    const off = store.get("off").some(([a, b]) => a === store.get("focus")[0] && b === store.get("focus")[1]);
    put(title, h("strong", {}, found.title), off ? " (switched off: its weights are shown, its output is not used)" : "");
    if (patches) patches.draw(found);
    matrix.draw(found);
    scale.textContent = `Strongest colour: ${found.high.toPrecision(3)}.` + (found.block > 1 ? ` ${store.get("map").header.shape.map((n) => n.toLocaleString("en")).join(" x ")} weights, each point the largest of ${found.block} x ${found.block}.` : "");
  };
  store.on(["map", "repaint"], show);
  store.on(["hover", "query"], () => {
    const { hover, query } = store.values;
    const attention = current();
    if (!attention) return;
    const row = hover?.sequence === attention.query ? hover.token : query;
    const column = hover?.to ?? (hover?.sequence === attention.key && attention.key !== attention.query ? hover.token : null);
    matrix.mark(row, column);
    patches?.mark();
  });
  const body = patches
    ? [patches.element, h("details", { class: "fold", open: false, ontoggle: show }, h("summary", {}, "All patches by all patches"), matrix.element)]
    : [matrix.element];
  return pane("map", words.map, words.mapAbout[described.image ? "image" : "text"], data, title, body, scale);
}
