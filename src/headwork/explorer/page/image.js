// Images of numbers from 0 to 1 on a canvas, and weights over their patches.
import { isDark, weightTable } from "./colours.js";
import { h } from "./dom.js";

// channel row column -> a canvas with one pixel for each.
export function pixelsAsImage(pixels, [rows, columns], channels) {
  const canvas = h("canvas", { width: columns, height: rows });
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const n = rows * columns;
  for (let i = 0; i < n; i++) {
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = 255 * pixels[(channels === 1 ? 0 : c) * n + i];
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

// The image, faint, under the weights of its patches; the strongest patch has the full colour.
export function drawOverlay(canvas, image, weights, [rows, columns], { strength = 0.8, peak = Math.max(...weights, 1e-12) } = {}) {
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  context.imageSmoothingEnabled = false;
  context.globalAlpha = 1;
  context.fillStyle = isDark() ? "#000" : "#fff";
  context.fillRect(0, 0, width, height);
  const table = weightTable();
  const [h1, w1] = [height / rows, width / columns];
  for (let i = 0; i < rows * columns; i++) {
    const b = 3 * Math.round(255 * Math.min(1, weights[i] / peak));
    context.fillStyle = `rgb(${table[b]} ${table[b + 1]} ${table[b + 2]})`;
    const [y, x] = [Math.floor(i / columns) * h1, (i % columns) * w1];
    context.fillRect(Math.floor(x), Math.floor(y), Math.ceil(x + w1) - Math.floor(x), Math.ceil(y + h1) - Math.floor(y));
  }
  if (image) {
    context.globalAlpha = 1 - strength;
    context.drawImage(image, 0, 0, width, height);
    context.globalAlpha = 1;
  }
}
