// The head in focus: over the tokens, over the patches of the image, or between source and target.
import { h, percent, put, times } from "../dom.js";
import { Heatmap } from "../heatmap.js";
import { glowLegend, weightLegend } from "../legend.js";
import { lookOf } from "../looks.js";
import { pane } from "../pane.js";
import { words } from "../words.js";
import { PatchMap } from "./patches.js";

export function mapPane({ described, store }) {
  const title = h("p.focus-name");
  const about = h("span");
  const matrix = new Heatmap({
    label: "weights of the head in focus, queries by keys",
    most: 560,
    quiet: described.image !== null,
    onPoint: (row, column) => {
      const attention = current();
      if (row === null || !attention) store.set({ hover: null });
      else store.set({ hover: { sequence: attention.query, token: row, to: column } });
    },
    onPick: (row) => store.set({ query: store.get("query") === row ? null : row }),
  });
  const patches = described.image ? new PatchMap({ described, store, onScale: (high) => put(glowScale, glowLegend(percent(high))) }) : null;
  const [scale, glowScale, look] = times(3, () => h("p.note"));
  const current = () => store.get("focus") && described.attention[store.get("focus")[0]];
  // In the last sequence the model writes: from each of its rows it chooses the next token.
  const chooses = (attention) => described.output === "next token" && attention.query === (described.input === "text pair" ? 1 : 0);

  function data() {
    const { map, reading, focus } = store.values;
    if (!map || !reading || map.header.attention !== focus[0]) return null;
    const { weights } = map.arrays;
    const attention = described.attention[map.header.attention];
    const block = map.header.block;
    const names = (sequence, n) => (block === 1 ? reading.header.sequences[sequence]?.strings : times(n, (i) => `${i * block + 1}-${(i + 1) * block}`));
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
      const own = row + 1 === rowNames.length || reading.header.continuation === null; // or the text goes on by hand
      const next = words.quote(rowNames[row + 1] ?? reading.header.answer.top[0]?.name);
      const then = chooses(attention) && block === 1 ? `. ${words.chooses} (${own ? `here ${next}` : `your text has ${next}`})` : "";
      const [from, to] = [rowNames[row], columnNames[column]].map((name) => (patches || block > 1 ? name : words.quote(name)));
      return `${from} ${what} ${percent(w)} to ${to}, ${rank === 1 ? "the most" : `rank ${rank}`} of ${columns}${then}`;
    };
    let high = 0;
    for (const w of values) if (w > high) high = w;
    return { title: `${attention.short}, head ${map.header.head}`, values, shape: weights.shape, rowNames, columnNames, high, describe, block, attention, restRow: reading.header.row ?? (chooses(attention) ? rowNames.length - 1 : null), text: (i) => (values[i] >= 0.005 ? (100 * values[i]).toFixed(0) : "") };
  }

  const show = () => {
    const found = data();
    if (!found) return;
    const { off, focus, reading } = store.values;
    const isOff = off.some(([a, b]) => a === focus[0] && b === focus[1]);
    put(title, h("strong", found.title), isOff ? " (switched off: its weights are shown, its output is not used)" : "");
    if (!patches) about.textContent = words.mapAbout.text + (chooses(found.attention) ? words.mapAbout.next : "");
    look.textContent = lookOf({ described, reading, attention: focus[0], head: focus[1] }).sentence ?? "";
    if (patches) patches.draw(found);
    if (!patches || matrix.element.parentElement.open) matrix.draw(found);
    const blocks = found.block > 1 ? ` ${store.get("map").header.shape.map((n) => n.toLocaleString("en")).join(" x ")} weights, each point the largest of ${found.block} x ${found.block}.` : "";
    put(scale, weightLegend(percent(found.high)), blocks);
  };
  store.on(["map", "repaint"], show);
  store.on(["hover", "query"], () => {
    const { hover, query } = store.values;
    const attention = current();
    if (!attention) return;
    if (patches) {
      matrix.mark(...patches.looking());
      patches.mark();
      return;
    }
    const row = hover?.sequence === attention.query ? hover.token : query;
    const column = hover?.to ?? (hover?.sequence === attention.key && attention.key !== attention.query ? hover.token : null);
    matrix.mark(row, column);
  });
  const body = patches
    ? [patches.element, glowScale, h("details.fold", { open: false, ontoggle: show }, h("summary", "All patches by all patches"), matrix.element, scale)]
    : [matrix.element, scale, look];
  about.textContent = words.mapAbout[patches ? "image" : "text"];
  return pane("map", words.map, about, data, title, body);
}
