// Every layer and head as a small map: click to look closer, untick to switch off, try which of them the answer needs.
import { h, percent, put, times } from "../dom.js";
import { cellsAsImage } from "../heatmap.js";
import { drawOverlay, pixelsAsImage } from "../image.js";
import { lookOf } from "../looks.js";
import { pane } from "../pane.js";
import { words } from "../words.js";
import { tryEachOff } from "./trying.js";

export function headsPane(context) {
  const { described, store } = context;
  const image = described.image;
  const widest = Math.max(...described.attention.map((each) => each.n_heads));
  const side = widest <= 4 ? 76 : widest <= 8 ? 60 : 44;
  const cells = [];
  const flips = [];
  const allOn = h("button", { onclick: () => store.set({ off: [] }) }, words.allOn);
  const layers = described.attention.map((attention, a) => {
    const row = times(attention.n_heads, (head) => {
      const canvas = h("canvas", { width: 2 * side, height: image ? Math.round((2 * side * image.grid[0]) / image.grid[1]) : 2 * side, "aria-hidden": "true" });
      const button = h("button.head-map", { onclick: () => (store.set({ focus: [a, head] }), showMap(button)) }, canvas);
      const tick = h("input", { type: "checkbox", checked: true, onchange: () => toggle(a, head, tick.checked) });
      tick.setAttribute("aria-label", `${attention.short}, head ${head} on`);
      const [look, effect] = ["look", "effect"].map((name) => h("span", { class: name }));
      const element = h("div.head", button, h("label.tick", tick, h("span", widest <= 8 ? `head ${head}` : String(head))), look, effect);
      cells.push({ a, head, canvas, button, tick, look, effect, element });
      return element;
    });
    const isOff = () => store.get("off").filter(([x]) => x === a).length === attention.n_heads;
    const flip = h("button", {
      class: "tool",
      onclick: () => {
        const others = store.get("off").filter(([x]) => x !== a);
        store.set({ off: isOff() ? others : [...others, ...times(attention.n_heads, (i) => [a, i])] });
      },
    });
    flips.push(() => {
      flip.textContent = isOff() ? "switch on" : "switch off";
      flip.setAttribute("aria-label", `${flip.textContent}: all heads of ${attention.short}`);
    });
    const kind = described.input !== "text pair" ? null : words.layerKinds[attention.kind === "cross" ? "cross" : attention.query ? "decoder" : "encoder"];
    const grid = h("div.layer-heads", row);
    grid.style.setProperty("--side", `${side}px`);
    return h("div.layer", { role: "group", "aria-label": attention.short }, h("p.layer-top", h("strong", attention.short), flip, kind ? h("span.note", kind) : null), grid);
  });

  const isSame = (a, b) => a?.length === b?.length && Boolean(a?.every((v, i) => v === b[i]));

  function toggle(a, head, on) {
    const off = store.get("off").filter(([x, y]) => x !== a || y !== head);
    store.set({ off: on ? off : [...off, [a, head]] });
  }
  const isOff = ({ a, head }) => store.get("off").some(([x, y]) => x === a && y === head);

  const marks = () => {
    const { off, focus } = store.values;
    for (const cell of cells) {
      const { a, head, button, tick, element } = cell;
      tick.checked = !isOff(cell);
      element.classList.toggle("off", isOff(cell));
      button.setAttribute("aria-pressed", focus?.[0] === a && focus?.[1] === head);
    }
    flips.forEach((update) => update());
    allOn.disabled = !off.length;
  };

  let pixels = null;
  const paint = (changed) => {
    const { reading } = store.values;
    if (!reading) return;
    const all = changed.has("repaint") || !isSame(pixels, reading.arrays.pixels?.data);
    pixels = reading.arrays.pixels?.data;
    const under = image && pixelsAsImage(pixels, image.size, image.channels);
    for (const cell of cells) {
      const { a, head, canvas, button, look } = cell;
      if (image) {
        const looks = reading.arrays[`looks.${a}`];
        if (!looks) continue;
        const seen = looks.data.subarray(head * looks.shape[1], (head + 1) * looks.shape[1]);
        if (!all && isSame(cell.seen, seen)) continue; // Gaussian heads that nobody drags
        cell.seen = seen;
        drawOverlay(canvas, under, seen.subarray(image.n_extra), image.grid);
      } else {
        const small = reading.arrays[`thumbnails.${a}`];
        if (!small) continue;
        const n = small.shape[1] * small.shape[2];
        const drawn = canvas.getContext("2d");
        drawn.imageSmoothingEnabled = false;
        drawn.drawImage(cellsAsImage({ values: small.data.subarray(head * n, (head + 1) * n), shape: small.shape.slice(1), high: 255 }), 0, 0, canvas.width, canvas.height);
      }
      const { place = "", share = null, sentence = "" } = lookOf({ described, reading, attention: a, head });
      put(look, share === null ? null : h("b", `${percent(share)} `), place);
      button.title = sentence;
      button.setAttribute("aria-label", `${described.attention[a].short}, head ${head}, looks at ${look.textContent}`);
    }
  };
  const figures = h("span");
  const tellFigures = ({ row, sequences }) => (figures.textContent = words.figures(row === null ? null : words.quote(sequences[0].strings[row])));
  if (!image) store.on(["reading"], () => tellFigures(store.get("reading").header));
  const trial = tryEachOff(context, cells, isOff);
  store.on(["reading", "repaint"], paint);
  store.on(["off", "focus"], marks);
  marks();
  const numbers = () => {
    const { reading } = store.values;
    if (!reading) return null;
    const values = new Float32Array(described.attention.length * widest).fill(NaN);
    described.attention.forEach((_, a) => reading.arrays[`peaks.${a}`].data.forEach((v, i) => (values[a * widest + i] = v)));
    return { title: "Largest weight of each head", rowNames: described.attention.map((each) => each.short), columnNames: times(widest, (i) => `head ${i}`), values, shape: [described.attention.length, widest], high: 1 };
  };
  const about = image ? words.headsImage + words.headsFrom(image.n_extra > 0) : words.headsText;
  return pane("heads", words.heads, [`${words.headsAbout}${about} `, figures, ` ${words.headsUse}`], numbers, h("div.row", described.output === "hidden state" ? null : [trial.button, trial.goal], allOn), trial.note, h("div.heads", layers));
}

// The large map may be far up or far down on a small screen.
function showMap(from) {
  const map = from.closest(".panes").querySelector(".pane-map");
  const { top, bottom } = map.getBoundingClientRect();
  if (top > innerHeight - 200 || bottom < 200) map.scrollIntoView();
}
