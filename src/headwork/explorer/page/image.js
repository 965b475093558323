// Images of numbers from 0 to 1 on a canvas, and weights over their patches.
import { h } from "./dom.js";

// channel row column -> a canvas with one pixel for each.
export function pixelsAsImage(pixels, [rows, columns], channels) {
  const canvas = h("canvas", { width: columns, height: rows, "aria-hidden": "true" });
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

// How a patch with this share of the strongest weight glows.
export const glow = (share) => `rgb(255 132 0 / ${(0.88 * Math.min(1, share)).toFixed(3)})`;

// The image with the weights of its patches over it: none leaves the patch as it is, the strongest makes it glow.
export function drawOverlay(canvas, image, weights, [rows, columns], peak = Math.max(...weights, 1e-12)) {
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  context.imageSmoothingEnabled = false;
  if (image) context.drawImage(image, 0, 0, width, height);
  const [high, wide] = [height / rows, width / columns];
  for (let i = 0; i < rows * columns; i++) {
    context.fillStyle = glow(weights[i] / peak);
    const [y, x] = [Math.floor(i / columns) * high, (i % columns) * wide];
    const [top, left] = [Math.round(y), Math.round(x)];
    context.fillRect(left, top, Math.round(x + wide) - left, Math.round(y + high) - top);
  }
}
