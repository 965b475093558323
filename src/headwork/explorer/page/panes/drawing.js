// Draw an image as the model reads it, drop one, or choose a file.
import { ARROWS, h, on, times } from "../dom.js";
import { pixelsAsImage } from "../image.js";
import { words } from "../words.js";

const FINE = 4; // strokes are kept this much finer and then averaged, as the digits of the training data were

export function drawing(context) {
  const { described, store } = context;
  const { size, channels, grid } = described.image;
  const [rows, columns] = size;
  const side = 256;
  const canvas = h("canvas.draw", { width: side, height: Math.round((side * rows) / columns), tabIndex: 0, role: "img" });
  canvas.setAttribute("aria-label", `the image, ${rows} x ${columns} pixels: arrow keys move the pen, space draws, Delete clears`);
  let pixels = new Float32Array(channels * rows * columns);
  let fine = null; // the strokes
  let pen = [Math.floor(rows / 2), Math.floor(columns / 2)];
  let light = true;
  const send = () => store.set({ input: { pixels: Array.from(pixels) } });

  const paint = () => {
    const drawn = canvas.getContext("2d");
    drawn.imageSmoothingEnabled = false;
    drawn.drawImage(pixelsAsImage(pixels, size, channels), 0, 0, canvas.width, canvas.height);
    drawn.strokeStyle = "rgb(120 150 220 / .45)";
    drawn.lineWidth = 1;
    const between = (n) => (n <= 32 ? times(n - 1, (i) => (i + 1) / n) : []);
    for (const y of between(grid[0])) line(drawn, 0, canvas.height * y, canvas.width, canvas.height * y);
    for (const x of between(grid[1])) line(drawn, canvas.width * x, 0, canvas.width * x, canvas.height);
    const { hover } = store.values;
    const patch = hover ? hover.token - described.image.n_extra : -1;
    if (patch >= 0) box(drawn, Math.floor(patch / grid[1]), patch % grid[1], grid);
    if (canvas.matches(":focus-visible")) box(drawn, pen[0], pen[1], size);
  };
  const line = (c, ...p) => (c.beginPath(), c.moveTo(p[0], p[1]), c.lineTo(p[2], p[3]), c.stroke());
  const box = (c, row, column, [r, k]) => {
    c.strokeStyle = "#e08a00";
    c.lineWidth = 2;
    c.strokeRect((column * canvas.width) / k + 1, (row * canvas.height) / r + 1, canvas.width / k - 2, canvas.height / r - 2);
  };

  // A dot at a place in pixels: all fine cells within the width of the pen.
  const dot = (y, x) => {
    fine ??= Float32Array.from({ length: rows * FINE * columns * FINE }, (_, i) => pixels[Math.floor(Math.floor(i / (columns * FINE)) / FINE) * columns + Math.floor((i % (columns * FINE)) / FINE)]);
    const radius = Math.max(1.6, 0.0875 * rows * FINE); // so that a drawn digit has as much ink as those of the training data
    for (let i = Math.max(0, Math.floor(y * FINE - radius)); i <= Math.min(rows * FINE - 1, y * FINE + radius); i++)
      for (let j = Math.max(0, Math.floor(x * FINE - radius)); j <= Math.min(columns * FINE - 1, x * FINE + radius); j++)
        if ((i + 0.5 - y * FINE) ** 2 + (j + 0.5 - x * FINE) ** 2 <= radius ** 2) fine[i * columns * FINE + j] = light ? 1 : 0;
  };
  const settle = () => {
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < columns; j++) {
        let sum = 0;
        for (let a = 0; a < FINE; a++) for (let b = 0; b < FINE; b++) sum += fine[(i * FINE + a) * columns * FINE + j * FINE + b];
        for (let c = 0; c < channels; c++) pixels[(c * rows + i) * columns + j] = sum / FINE ** 2;
      }
    paint();
    send();
  };

  let last = null;
  const place = (event) => {
    const room = canvas.getBoundingClientRect();
    return [((event.clientY - room.top) / room.height) * rows, ((event.clientX - room.left) / room.width) * columns];
  };
  on(canvas, "pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = place(event);
    light = event.button !== 2 && !event.shiftKey;
    dot(...last);
    settle();
  });
  on(canvas, "pointermove", (event) => {
    const [y, x] = place(event);
    if (!last) {
      const token = Math.floor((y * grid[0]) / rows) * grid[1] + Math.floor((x * grid[1]) / columns) + described.image.n_extra;
      return store.set({ hover: { sequence: 0, token } });
    }
    const steps = Math.ceil(Math.hypot(y - last[0], x - last[1]) * FINE) || 1;
    for (let k = 1; k <= steps; k++) dot(last[0] + ((y - last[0]) * k) / steps, last[1] + ((x - last[1]) * k) / steps);
    last = [y, x];
    settle();
  });
  const lift = () => (last = null);
  on(canvas, "pointerup", lift);
  on(canvas, "pointercancel", lift);
  on(canvas, "pointerleave", () => store.set({ hover: null }));
  on(canvas, "contextmenu", (event) => event.preventDefault());
  on(canvas, "focus", paint);
  on(canvas, "blur", paint);
  on(canvas, "keydown", (event) => {
    if (event.key in ARROWS) pen = pen.map((p, i) => Math.max(0, Math.min(size[i] - 1, p + ARROWS[event.key][i])));
    else if (event.key === " ") {
      light = !event.shiftKey;
      dot(pen[0] + 0.5, pen[1] + 0.5);
      settle();
    } else if (event.key === "Delete" || event.key === "Backspace") clear();
    else return;
    event.preventDefault();
    paint();
  });

  const replace = (change) => {
    pixels = pixels.map(change);
    fine = null;
    paint();
    send();
  };
  const clear = () => replace(() => 0);
  const open = async (file) => {
    try {
      const image = await createImageBitmap(file);
      const small = h("canvas", { width: columns, height: rows });
      const drawn = small.getContext("2d");
      drawn.imageSmoothingQuality = "high";
      drawn.drawImage(image, 0, 0, columns, rows);
      const { data } = drawn.getImageData(0, 0, columns, rows);
      const n = rows * columns;
      replace((_, at) => {
        const [r, g, b, a] = [0, 1, 2, 3].map((c) => data[4 * (at % n) + c] / 255);
        return a * (channels === 1 ? 0.299 * r + 0.587 * g + 0.114 * b : [r, g, b][Math.floor(at / n)]);
      });
    } catch {
      store.set({ notice: "This file is not a picture that the browser can read: PNG, JPEG, WebP, GIF and BMP are." });
    }
  };
  const file = h("input", { type: "file", accept: "image/*", class: "offscreen", tabIndex: -1, "aria-hidden": "true", onchange: () => file.files[0] && open(file.files[0]) });
  const area = h(
    "div.drawing",
    canvas,
    h(
      "div.row",
      h("button", { onclick: clear }, "Clear"),
      h("button", { onclick: () => replace((v) => 1 - v) }, "Invert"),
      h("button", { onclick: () => file.click() }, "Open a picture"),
      file,
    ),
    h("p.note", words.patches(size, grid)),
  );
  on(area, "dragover", (event) => event.preventDefault());
  on(area, "drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files[0]) open(event.dataTransfer.files[0]);
  });
  store.on(["reading"], () => {
    const found = store.get("reading").arrays.pixels;
    if (!found || last) return;
    if (found.data.every((v, i) => Math.abs(v - pixels[i]) <= 1e-6)) return;
    pixels = Float32Array.from(found.data);
    fine = null;
    paint();
  });
  paint();
  store.on(["hover", "repaint"], paint);
  return area;
}
