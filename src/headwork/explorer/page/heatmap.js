// A map of numbers by rows and columns: drawn on a canvas, read by mouse, by keyboard and by a screen reader.
import { differenceTable, inkOn, isDark, weightTable } from "./colours.js";
import { h, newId } from "./dom.js";

const LARGEST_CELL = 44;
const LABELLED = 9; // pixels a cell must have for its token to be written beside it

export class Heatmap {
  // onPoint(row, column) while the mouse or the cursor is there, onPoint(null) when it leaves; onPick on click or Enter.
  constructor({ label, onPoint = () => {}, onPick = () => {}, largest = LARGEST_CELL, most = 0 }) {
    Object.assign(this, { onPoint, onPick, largest, most, data: null, at: [0, 0], shown: null });
    const id = newId("cell");
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.cell = h("div", { role: "gridcell", id, class: "offscreen" });
    this.grid = h(
      "div",
      { role: "grid", tabIndex: 0, "aria-label": label, "aria-activedescendant": id, class: "map-grid", onkeydown: (e) => this.key(e) },
      h("div", { role: "row", class: "offscreen" }, this.cell),
      this.canvas,
    );
    this.grid.addEventListener("focus", () => this.move(...this.at));
    this.grid.addEventListener("blur", () => this.leave());
    this.canvas.addEventListener("pointermove", (e) => this.pointer(e, false));
    this.canvas.addEventListener("pointerdown", (e) => this.pointer(e, true));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.says = h("p", { class: "says", "aria-live": "polite" });
    this.element = h("div", { class: "map" }, h("div", { class: "map-scroll" }, this.grid), this.says);
    new ResizeObserver(() => this.data && this.paint()).observe(this.element);
  }

  // data: {values, shape: [rows, columns], rowNames, columnNames, low, high, signed, describe(row, column)}
  draw(data) {
    this.data = data;
    this.at = [Math.min(this.at[0], data.shape[0] - 1), Math.min(this.at[1], data.shape[1] - 1)];
    this.grid.setAttribute("aria-rowcount", data.shape[0]);
    this.grid.setAttribute("aria-colcount", data.shape[1]);
    this.paint();
    this.say(...this.at, false);
  }

  // Frame a row and a column, as pointed at elsewhere.
  mark(row, column) {
    this.marked = [row, column];
    if (this.data) this.frame();
  }

  paint() {
    const { shape, rowNames, columnNames } = this.data;
    const [rows, columns] = shape;
    const scale = globalThis.devicePixelRatio || 1;
    const room = Math.max(this.element.clientWidth || 320, 120);
    const style = getComputedStyle(this.element);
    const context = this.canvas.getContext("2d");
    const font = (context.font = `12px ${style.fontFamily}`);
    const widest = (names) => names.reduce((most, name) => Math.max(most, context.measureText(name.slice(0, 16)).width), 0);
    let left = rowNames ? Math.min(widest(rowNames) + 8, room / 3) : 0;
    let cell = Math.min(this.largest, (room - left - 4) / columns, this.most ? this.most / rows : Infinity);
    cell = cell >= 2 ? Math.floor(cell) : Math.max(cell, 0.25);
    const labelled = cell >= LABELLED;
    if (!labelled) {
      left = 0;
      cell = Math.min(this.largest, room / columns, this.most ? this.most / rows : Infinity);
      cell = cell >= 2 ? Math.floor(cell) : cell;
    }
    const top = labelled && columnNames ? Math.min(widest(columnNames) * 0.8 + 14, 96) : 0;
    const over = labelled && columnNames ? top * 0.7 : 0; // the last label leans out to the right
    this.layout = { left, top, cell };
    const width = left + cell * columns + over;
    const height = top + cell * rows + 2;
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    this.canvas.width = Math.ceil(width * scale);
    this.canvas.height = Math.ceil(height * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.imageSmoothingEnabled = cell < 1;
    context.drawImage(cellsAsImage(this.data), left, top, cell * columns, cell * rows);
    context.strokeStyle = isDark() ? "#3a3f4b" : "#c9ccd4";
    context.lineWidth = 1;
    context.strokeRect(left + 0.5, top + 0.5, cell * columns - 1, cell * rows - 1);
    if (labelled) {
      context.font = font;
      context.fillStyle = style.color;
      context.textBaseline = "middle";
      context.textAlign = "right";
      if (rowNames) rowNames.forEach((name, i) => context.fillText(cut(name), left - 5, top + (i + 0.5) * cell, left - 6));
      context.textAlign = "left";
      if (columnNames)
        columnNames.forEach((name, i) => {
          context.save();
          context.translate(left + (i + 0.5) * cell, top - 5);
          context.rotate(-Math.PI / 4);
          context.fillText(cut(name), 0, 0);
          context.restore();
        });
    }
    if (this.data.text && cell >= 24) this.write(context, left, top, cell);
    this.clean = h("canvas", { width: this.canvas.width, height: this.canvas.height });
    this.clean.getContext("2d").drawImage(this.canvas, 0, 0);
    this.frame();
  }

  // Words or numbers inside the cells, where there is room.
  write(context, left, top, cell) {
    const { shape, values, text } = this.data;
    context.textAlign = "center";
    context.font = `${Math.min(12, cell / 2.6)}px ${getComputedStyle(this.element).fontFamily}`;
    const table = this.data.signed ? differenceTable() : weightTable();
    for (let i = 0; i < shape[0] * shape[1]; i++) {
      const b = 3 * toByte(this.data, values[i]);
      context.fillStyle = inkOn(`rgb(${table[b]} ${table[b + 1]} ${table[b + 2]})`);
      context.fillText(text(i), left + ((i % shape[1]) + 0.5) * cell, top + (Math.floor(i / shape[1]) + 0.5) * cell, cell - 2);
    }
  }

  frame() {
    const context = this.canvas.getContext("2d");
    const scale = globalThis.devicePixelRatio || 1;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.drawImage(this.clean, 0, 0);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    const { left, top, cell } = this.layout;
    const [rows, columns] = this.data.shape;
    const [row, column] = this.shown ?? this.marked ?? [null, null];
    context.strokeStyle = isDark() ? "#ffd479" : "#b85c00";
    context.lineWidth = 1.5;
    if (row !== null && row !== undefined && row < rows) context.strokeRect(left, top + row * cell, columns * cell, Math.max(cell, 1));
    if (column !== null && column !== undefined && column < columns) context.strokeRect(left + column * cell, top, Math.max(cell, 1), rows * cell);
  }

  pointer(event, picked) {
    if (!this.data) return;
    const box = this.canvas.getBoundingClientRect();
    const { left, top, cell } = this.layout;
    const column = Math.floor((event.clientX - box.left - left) / cell);
    const row = Math.floor((event.clientY - box.top - top) / cell);
    const [rows, columns] = this.data.shape;
    if (row < 0 || row >= rows || column < 0 || column >= columns) return this.leave();
    this.move(row, column);
    if (picked) this.onPick(row, column);
  }

  key(event) {
    if (!this.data) return;
    const [rows, columns] = this.data.shape;
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-10, 0], PageDown: [10, 0] };
    const [row, column] = this.at;
    if (event.key === "Enter" || event.key === " ") this.onPick(row, column);
    else if (event.key === "Home") this.move(row, 0);
    else if (event.key === "End") this.move(row, columns - 1);
    else if (event.key in steps) this.move(...[rows, columns].map((n, i) => Math.max(0, Math.min(n - 1, this.at[i] + steps[event.key][i]))));
    else return;
    event.preventDefault();
  }

  move(row, column) {
    this.at = [row, column];
    this.shown = [row, column];
    this.frame();
    this.say(row, column, true);
    this.onPoint(row, column);
  }

  leave() {
    if (!this.shown) return;
    this.shown = null;
    if (this.data) this.frame();
    this.onPoint(null, null);
  }

  say(row, column, aloud) {
    const sentence = this.data.describe(row, column);
    this.cell.textContent = sentence;
    this.cell.setAttribute("aria-rowindex", row + 1);
    this.cell.setAttribute("aria-colindex", column + 1);
    if (aloud || !this.says.textContent) this.says.textContent = sentence;
  }
}

export const cut = (name) => (name.length > 16 ? `${name.slice(0, 15)}…` : name);

function toByte({ low = 0, high, signed }, value) {
  if (!Number.isFinite(value)) return 0;
  const share = signed ? (value / (high || 1) + 1) / 2 : (value - low) / (high - low || 1);
  return Math.max(0, Math.min(255, Math.round(255 * share)));
}

// One pixel for each number.
export function cellsAsImage(data) {
  const [rows, columns] = data.shape;
  const canvas = h("canvas", { width: columns, height: rows });
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const table = data.signed ? differenceTable() : weightTable();
  for (let i = 0; i < rows * columns; i++) {
    const b = 3 * toByte(data, data.values[i]);
    image.data[4 * i] = table[b];
    image.data[4 * i + 1] = table[b + 1];
    image.data[4 * i + 2] = table[b + 2];
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
