// Pictures as SVG text, for a paper: maps, bars and lines, in the colours of paper.
import { chooseTheme, differenceColour, hue, isDark, weightColour } from "./colours.js";
import { cellsAsImage, cut } from "./heatmap.js";
import { h, times } from "./dom.js";

const MOST_CELLS = 20000;
const safe = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
const label = (x, y, text, more = "") => `<text x="${x}" y="${y}" font-family="system-ui, sans-serif" font-size="11" ${more}>${safe(text)}</text>`;
const heading = (title) => label(10, 16, title, 'font-weight="600"');

export function toSvg(found) {
  const was = isDark();
  chooseTheme("light");
  try {
    return { map: mapSvg, bars: barsSvg, lines: linesSvg }[found.kind ?? "map"](found);
  } finally {
    chooseTheme(was ? "dark" : "light");
  }
}

const wrap = (width, height, title, inside, ground = "#fff") =>
  `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"><title>${safe(title)}</title><rect width="100%" height="100%" fill="${ground}"/>${inside}</svg>`;

function mapSvg({ title, values, shape, rowNames, columnNames, low = 0, high, signed }) {
  const [rows, columns] = shape;
  const cell = Math.max(2, Math.min(24, Math.floor(640 / Math.max(rows, columns))));
  const named = cell >= 8;
  const left = named && rowNames ? 100 : 10;
  const top = named && columnNames ? 96 : 26;
  let inside = heading(title);
  if (rows * columns <= MOST_CELLS) {
    for (let i = 0; i < rows * columns; i++) {
      const share = signed ? values[i] / (high || 1) : (values[i] - low) / (high - low || 1);
      const colour = signed ? differenceColour(share) : weightColour(share);
      inside += `<rect x="${left + (i % columns) * cell}" y="${top + Math.floor(i / columns) * cell}" width="${cell}" height="${cell}" fill="${colour}"/>`;
    }
  } else {
    const image = cellsAsImage({ values, shape, low, high, signed }).toDataURL();
    inside += `<image x="${left}" y="${top}" width="${columns * cell}" height="${rows * cell}" href="${image}" style="image-rendering:pixelated"/>`;
  }
  inside += `<rect x="${left}" y="${top}" width="${columns * cell}" height="${rows * cell}" fill="none" stroke="#999"/>`;
  const step = Math.ceil(13 / cell); // where there is no room for all names
  if (named && rowNames) rowNames.forEach((name, i) => i % step || (inside += label(left - 5, top + (i + 0.5) * cell + 4, cut(name), 'text-anchor="end"')));
  if (named && columnNames)
    columnNames.forEach((name, i) => i % step || (inside += label(0, 0, cut(name), `transform="translate(${left + (i + 0.5) * cell + 3} ${top - 5}) rotate(-45)"`)));
  const height = top + rows * cell + 30;
  inside += label(left, height - 10, signed ? `-${(high || 0).toPrecision(3)} .. ${(high || 0).toPrecision(3)}` : `white ${Number(low).toPrecision(3)}, strongest ${Number(high).toPrecision(3)}`);
  return wrap(left + columns * cell + 80, height, title, inside);
}

function barsSvg({ title, values, shape, rowNames }) {
  const most = Math.max(...values, 1e-12);
  let inside = heading(title);
  for (let i = 0; i < shape[0]; i++) {
    const y = 30 + i * 20;
    const value = values[i * shape[1]];
    const long = (360 * value) / most;
    inside += `${label(115, y + 11, cut(rowNames[i]), 'text-anchor="end"')}<rect x="120" y="${y}" width="${long}" height="14" fill="#2c5fc9"/>${label(126 + long, y + 11, Number(value).toPrecision(3))}`;
  }
  return wrap(560, 40 + shape[0] * 20, title, inside);
}

// values by column: the first is x, each other a line.
function linesSvg({ title, values, shape, columnNames, xName, yName, ink = "#222" }) {
  const [rows, columns] = shape;
  const at = (i, j) => values[i * columns + j];
  const xs = times(rows, (i) => at(i, 0));
  const all = [];
  for (let i = 0; i < rows; i++) for (let j = 1; j < columns; j++) if (Number.isFinite(at(i, j))) all.push(at(i, j));
  const [x0, x1, y1] = [Math.min(...xs), Math.max(...xs), Math.max(...all, 1e-12)];
  const [width, height, left, bottom] = [560, 260, 56, 36];
  const px = (x) => left + ((x - x0) / (x1 - x0 || 1)) * (width - left - 16);
  const py = (y) => height - bottom - (y / y1) * (height - bottom - 30);
  const text = (x, y, value, anchor = "start") => label(x, y, value, `fill="${ink}" text-anchor="${anchor}"`);
  let inside = "";
  for (let k = 0; k <= 4; k++) {
    const y = (k / 4) * y1;
    inside += `<line x1="${left}" x2="${width - 16}" y1="${py(y)}" y2="${py(y)}" stroke="${ink}" stroke-opacity=".15"/>${text(left - 6, py(y) + 4, Number(y.toPrecision(3)), "end")}`;
  }
  inside += text(left, height - 8, Number(x0.toPrecision(4))) + text(width - 16, height - 8, Number(x1.toPrecision(4)), "end") + text((left + width) / 2, height - 8, xName ?? columnNames[0], "middle") + text(10, 16, yName ?? "");
  for (let j = 1; j < columns; j++) {
    const points = xs.map((x, i) => [x, at(i, j)]).filter(([, y]) => Number.isFinite(y));
    const colour = hue(j);
    inside += `<polyline fill="none" stroke="${colour}" stroke-width="2" points="${points.map(([x, y]) => `${px(x).toFixed(1)},${py(y).toFixed(1)}`).join(" ")}"/>`;
    if (points.length < 60) inside += points.map(([x, y]) => `<circle cx="${px(x).toFixed(1)}" cy="${py(y).toFixed(1)}" r="2.5" fill="${colour}"/>`).join("");
    inside += `<rect x="${left + 8 + (j - 1) * 140}" y="20" width="10" height="10" fill="${colour}"/>${text(left + 22 + (j - 1) * 140, 29, columnNames[j])}`;
  }
  return wrap(width, height, title, inside, ink === "#222" ? "#fff" : "none"); // on the page, its own ground
}

// Lines as a picture in the page, in its colours.
export function chart(data) {
  const box = h("figure.chart", { role: "img", "aria-label": data.title });
  box.innerHTML = linesSvg({ ...data, ink: isDark() ? "#e9ebf1" : "#1b1d23" });
  return box;
}
