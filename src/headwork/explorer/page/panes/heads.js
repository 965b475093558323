// Every layer and head as a small map: click to look closer, untick to switch off.
import { weightTable } from "../colours.js";
import { h, put } from "../dom.js";
import { drawOverlay, pixelsAsImage } from "../image.js";
import { pane } from "../pane.js";
import { words } from "../words.js";

export function headsPane({ described, store }) {
  const image = described.image;
  const widest = Math.max(...described.attention.map((each) => each.n_heads));
  const side = widest <= 4 ? 70 : widest <= 8 ? 60 : 44;
  const cells = [];
  const allOn = h("button", { type: "button", class: "tool", onclick: () => store.set({ off: [] }) }, words.allOn);
  const rows = described.attention.map((attention, a) => {
    const row = Array.from({ length: attention.n_heads }, (_, head) => {
      const canvas = h("canvas", { width: 2 * side, height: image ? Math.round((2 * side * image.grid[0]) / image.grid[1]) : 2 * side, "aria-hidden": "true", style: { width: `${side}px` } });
      const button = h("button", { type: "button", class: "head-map", onclick: () => store.set({ focus: [a, head] }) }, canvas);
      const tick = h("input", { type: "checkbox", checked: true, onchange: () => toggle(a, head, tick.checked) });
      tick.setAttribute("aria-label", `${attention.short}, head ${head} on`);
      const cell = { a, head, canvas, button, tick, element: h("td", {}, h("div", { class: "head" }, button, h("label", { class: "tick" }, tick, h("span", {}, String(head))))) };
      cells.push(cell);
      return cell.element;
    });
    const flip = () => {
      const off = store.get("off").filter(([x]) => x !== a);
      const all = store.get("off").length - off.length < attention.n_heads;
      store.set({ off: all ? [...off, ...Array.from({ length: attention.n_heads }, (_, i) => [a, i])] : off });
    };
    return h("tr", {}, h("th", { scope: "row" }, h("button", { type: "button", class: "layer-name", title: "switch the whole layer off or on", onclick: flip }, attention.short)), row);
  });

  function toggle(a, head, on) {
    const off = store.get("off").filter(([x, y]) => x !== a || y !== head);
    store.set({ off: on ? off : [...off, [a, head]] });
  }

  const marks = () => {
    const { off, focus } = store.values;
    for (const { a, head, button, tick, element } of cells) {
      const isOff = off.some(([x, y]) => x === a && y === head);
      tick.checked = !isOff;
      element.classList.toggle("off", isOff);
      button.setAttribute("aria-pressed", focus?.[0] === a && focus?.[1] === head);
    }
    allOn.disabled = !off.length;
  };

  const paint = () => {
    const { reading } = store.values;
    if (!reading) return;
    const under = image && pixelsAsImage(reading.arrays.pixels.data, image.size, image.channels);
    for (const { a, head, canvas, button } of cells) {
      const peak = reading.arrays[`peaks.${a}`]?.data[head] ?? 0;
      if (image) {
        const looks = reading.arrays[`looks.${a}`];
        if (!looks) continue;
        const from = head * looks.shape[1] + image.n_extra;
        drawOverlay(canvas, under, looks.data.subarray(from, (head + 1) * looks.shape[1]), image.grid);
      } else {
        const small = reading.arrays[`thumbnails.${a}`];
        if (!small) continue;
        drawBytes(canvas, small.data.subarray(head * small.shape[1] * small.shape[2], (head + 1) * small.shape[1] * small.shape[2]), small.shape.slice(1));
      }
      button.setAttribute("aria-label", `${described.attention[a].short}, head ${head}, largest weight ${peak.toFixed(2)}`);
    }
  };
  store.on(["reading", "repaint"], paint);
  store.on(["off", "focus"], marks);
  marks();
  const numbers = () => {
    const { reading } = store.values;
    if (!reading) return null;
    const columns = Math.max(...described.attention.map((each) => each.n_heads));
    const values = new Float32Array(described.attention.length * columns).fill(NaN);
    described.attention.forEach((_, a) => reading.arrays[`peaks.${a}`].data.forEach((v, i) => (values[a * columns + i] = v)));
    return { title: "Largest weight of each head", rowNames: described.attention.map((each) => each.short), columnNames: Array.from({ length: columns }, (_, i) => `head ${i}`), values, shape: [described.attention.length, columns], low: 0, high: 1 };
  };
  const about = words.headsAbout[image ? "image" : "text"];
  return pane("heads", words.heads, about, numbers, h("div", { class: "heads-scroll", tabIndex: 0, role: "group", "aria-label": "all heads" }, h("table", { class: "heads" }, h("tbody", {}, rows))), h("p", {}, allOn));
}

function drawBytes(canvas, bytes, [rows, columns]) {
  const small = h("canvas", { width: columns, height: rows });
  const context = small.getContext("2d");
  const image = context.createImageData(columns, rows);
  const table = weightTable();
  for (let i = 0; i < rows * columns; i++) {
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = table[3 * bytes[i] + c];
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  const drawn = canvas.getContext("2d");
  drawn.imageSmoothingEnabled = false;
  drawn.drawImage(small, 0, 0, canvas.width, canvas.height);
}
