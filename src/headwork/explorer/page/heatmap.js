// A map of numbers by rows and columns: drawn on a canvas, read by mouse, by keyboard and by a screen reader.
import { differenceTable, inkOn, isDark, weightTable } from "./colours.js";
import { ARROWS, h, newId, on, set } from "./dom.js";

const LARGEST_CELL = 44;
const LABELLED = 4; // pixels a cell must have for some of the tokens to be written beside it
const LONGEST = 28; // letters of the name of a row
const [ROW_ROOM, LEANING_ROOM] = [13, 17]; // pixels that a label needs beside its rows, and leaning over its columns

export class Heatmap {
  // onPoint(row, column) while the mouse or the cursor is there, onPoint(null) when it leaves; onPick on click or Enter. One
  // that is quiet has no sentence of its own.
  constructor({ label, onPoint = () => {}, onPick = () => {}, largest = LARGEST_CELL, most = 0, quiet = false }) {
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
    on(this.grid, "focus", () => this.move(...this.at));
    on(this.grid, "blur", () => this.leave());
    on(this.canvas, "pointermove", (e) => this.pointer(e, false));
    on(this.canvas, "pointerdown", (e) => this.pointer(e, true));
    on(this.canvas, "pointerleave", () => this.leave());
    this.says = h("p.says", { "aria-live": "polite" });
    this.element = h("div.map", h("div.map-scroll", this.grid), quiet ? null : this.says);
    new ResizeObserver(() => this.data && this.paint()).observe(this.element);
  }

  // data: {values, shape: [rows, columns], rowNames, columnNames, low, high, signed, describe(row, column), restRow}
  draw(data) {
    this.data = data;
    this.at = [Math.min(this.at[0], data.shape[0] - 1), Math.min(this.at[1], data.shape[1] - 1)];
    set(this.grid, { "aria-rowcount": data.shape[0], "aria-colcount": data.shape[1] });
    this.paint();
    this.shown ? this.say(...this.at, true) : this.rest();
  }

  // Frame a row and a column, as pointed at elsewhere.
  mark(row, column) {
    this.marked = [row, column];
    if (!this.data) return;
    this.frame();
    if (!this.shown) this.rest();
  }

  paint() {
    const { shape, rowNames, columnNames } = this.data;
    const [rows, columns] = shape;
    const scale = globalThis.devicePixelRatio || 1;
    const room = Math.max(this.element.clientWidth || 320, 120);
    const style = getComputedStyle(this.element);
    const context = this.canvas.getContext("2d");
    const font = (context.font = `12px ${style.fontFamily}`);
    const widest = (names, most) => names.reduce((wide, name) => Math.max(wide, context.measureText(cut(name, most)).width), 0);
    let left = rowNames ? Math.min(widest(rowNames, LONGEST) + 8, room / 3) : 0;
    const fit = (width) => {
      const size = Math.min(this.largest, width / columns, this.most ? this.most / rows : Infinity);
      return size >= 2 ? Math.floor(size) : Math.max(size, 0.25);
    };
    let cell = fit(room - left - 4);
    const labelled = cell >= LABELLED;
    if (!labelled) [left, cell] = [0, fit(room)];
    const upright = columnNames && widest(columnNames) <= cell - 1;
    const top = !labelled || !columnNames ? 0 : upright ? 18 : Math.min(widest(columnNames) * 0.8 + 14, 96);
    const over = upright ? 0 : top * 0.7; // the last label leans out to the right
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
      // Where there is no room for all labels, every second is written, or every third.
      const some = (names, room, write) => names?.forEach((name, i) => i % Math.ceil(room / cell) || write(name, i));
      some(rowNames, ROW_ROOM, (name, i) => context.fillText(cut(name, LONGEST), left - 5, top + (i + 0.5) * cell, left - 6));
      context.textAlign = upright ? "center" : "left";
      if (upright) some(columnNames, cell, (name, i) => context.fillText(name, left + (i + 0.5) * cell, top - 8));
      else
        some(columnNames, LEANING_ROOM, (name, i) => {
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
    if ((row ?? rows) < rows) context.strokeRect(left, top + row * cell, columns * cell, Math.max(cell, 1));
    if ((column ?? columns) < columns) context.strokeRect(left + column * cell, top, Math.max(cell, 1), rows * cell);
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
    const steps = { ...ARROWS, PageUp: [-10, 0], PageDown: [10, 0] };
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
    if (this.data) {
      this.frame();
      this.rest();
    }
    this.onPoint(null, null);
  }

  // Nobody points: the sentence is of the largest number, in the row that is marked or the one that the data names, if any.
  rest() {
    const { values, shape: [rows, columns] } = this.data;
    const row = this.marked?.[0] ?? this.data.restRow ?? null;
    const [from, end] = (row ?? rows) < rows ? [row * columns, (row + 1) * columns] : [0, rows * columns];
    let best = from;
    for (let i = best + 1; i < end; i++) if (Math.abs(values[i]) > Math.abs(values[best])) best = i;
    this.say(Math.floor(best / columns), best % columns, false);
  }

  say(row, column, aloud) {
    const sentence = this.data.describe(row, column);
    this.cell.textContent = sentence;
    set(this.cell, { "aria-rowindex": row + 1, "aria-colindex": column + 1 });
    this.says.setAttribute("aria-live", aloud ? "polite" : "off"); // what nobody pointed at is not read aloud
    this.says.textContent = sentence;
  }
}

export const cut = (name, most = 16) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);

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
