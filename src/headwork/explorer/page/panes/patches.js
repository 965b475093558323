// Where a head looks in an image, from one patch: the patch is framed, the weights lie over the image.
import { ARROWS, h, on, put, times } from "../dom.js";
import { drawOverlay, pixelsAsImage } from "../image.js";

export class PatchMap {
  // onScale(weight) whenever another weight is that of the strongest glow.
  constructor({ described, store, onScale = () => {} }) {
    Object.assign(this, { described, store, onScale, found: null, at: 0 });
    const { grid, n_extra } = described.image;
    this.canvas = h("canvas", { width: 320, height: Math.round((320 * grid[0]) / grid[1]), class: "patch-map", tabIndex: 0, role: "img" });
    this.says = h("p.says", { "aria-live": "polite" });
    this.extra = times(n_extra, (i) =>
      h("button.token", { onclick: () => store.set({ query: i }), onfocus: () => this.point(i), onblur: () => this.point(null) }, ["class token", "distillation token"][i] ?? `token ${i + 1}`),
    );
    const place = (event) => {
      const box = this.canvas.getBoundingClientRect();
      const row = Math.floor(((event.clientY - box.top) / box.height) * grid[0]);
      const column = Math.floor(((event.clientX - box.left) / box.width) * grid[1]);
      return Math.max(0, Math.min(grid[0] - 1, row)) * grid[1] + Math.max(0, Math.min(grid[1] - 1, column)) + n_extra;
    };
    on(this.canvas, "pointermove", (event) => this.point(place(event)));
    on(this.canvas, "pointerleave", () => this.point(null));
    on(this.canvas, "pointerdown", (event) => store.set({ query: place(event) }));
    on(this.canvas, "blur", () => this.point(null));
    on(this.canvas, "keydown", (event) => {
      const [rows, columns] = ARROWS[event.key] ?? [0, 0];
      const step = rows * grid[1] + columns;
      if (event.key === "Enter" || event.key === " ") store.set({ query: this.at + n_extra });
      else if (step) {
        this.at = Math.max(0, Math.min(grid[0] * grid[1] - 1, this.at + step));
        this.point(this.at + n_extra);
      } else return;
      event.preventDefault();
    });
    this.from = h("p");
    this.element = h("div.patches", this.canvas, this.from, this.says);
  }

  point(token) {
    this.store.set({ hover: token === null ? null : { sequence: 0, token } });
  }

  // From where we look: the patch that was clicked, the class token, or the middle of the image.
  get query() {
    const { grid, n_extra } = this.described.image;
    return this.store.get("query") ?? (n_extra ? 0 : Math.floor(grid[0] / 2) * grid[1] + Math.floor(grid[1] / 2));
  }

  // [from, to], to is null if nobody points: a pair that is pointed at among all pairs, or a patch as seen from here.
  looking() {
    const { hover } = this.store.values;
    return hover?.to !== undefined && hover?.to !== null ? [hover.token, hover.to] : [this.query, hover?.token ?? null];
  }

  draw(found) {
    this.found = found;
    this.mark();
  }

  mark() {
    const { found } = this;
    const { reading } = this.store.values;
    if (!found || !reading || found.block !== 1) return;
    const { grid, n_extra, size, channels } = this.described.image;
    const [from, pointed] = this.looking();
    const [query, n] = [Math.min(from, found.shape[0] - 1), found.shape[1]];
    const weights = found.values.subarray(query * n, (query + 1) * n);
    const image = pixelsAsImage(reading.arrays.pixels.data, size, channels);
    const peak = Math.max(...weights.subarray(n_extra), 1e-12);
    drawOverlay(this.canvas, image, weights.subarray(n_extra), grid, peak);
    this.onScale(peak);
    const context = this.canvas.getContext("2d");
    const [high, wide] = [this.canvas.height / grid[0], this.canvas.width / grid[1]];
    const frame = (token, colour, width) => {
      const p = token - n_extra;
      if (p < 0) return;
      for (const [line, inset] of [["#000", 0], [colour, 1.5]]) {
        context.strokeStyle = line;
        context.lineWidth = width;
        const edge = width / 2 + inset;
        context.strokeRect((p % grid[1]) * wide + edge, Math.floor(p / grid[1]) * high + edge, wide - 2 * edge, high - 2 * edge);
      }
    };
    if (pointed !== null) frame(pointed, "#fff", 2);
    frame(query, "#35e0c0", 4);
    const names = found.rowNames;
    put(this.from, "Looking from ", h("strong", names[query]), ". ", n_extra ? ["Click a patch to look from there, or ", this.extra, "."] : "Click another patch to look from there.");
    this.extra.forEach((button, i) => button.setAttribute("aria-pressed", query === i));
    const best = weights.reduce((b, w, i) => (w > weights[b] ? i : b), 0);
    const to = pointed ?? best;
    const sentence = to < n ? found.describe(query, to) : "";
    this.says.textContent = sentence;
    this.canvas.setAttribute("aria-label", `where the head looks from ${names[query]}: ${sentence}. Arrow keys move, Enter looks from there`);
  }
}
