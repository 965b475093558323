// What can be done with every picture: read it as numbers, save it as SVG or PNG.
import { h, times } from "./dom.js";
import { toSvg } from "./vector.js";

const MOST_ROWS = 200;

// describe() -> {name, title, rowNames, columnNames, values, shape, low, high, signed, kind: "map" | "bars" | "lines"}
export function pictureTools(describe) {
  const button = (text, label, action) => h("button.tool", { "aria-label": label, onclick: action }, text);
  const open = () => {
    const found = describe();
    if (found) showNumbers(found);
  };
  return h(
    "span.tools",
    button("as numbers", "show as numbers", open),
    button("SVG", "save as SVG", () => saveSvg(describe())),
    button("PNG", "save as PNG", () => savePng(describe())),
  );
}

function showNumbers(found) {
  const dialog = h("dialog.numbers", { "aria-label": `${found.title} as numbers`, onclose: () => dialog.remove() });
  const close = h("button", { onclick: () => dialog.close() }, "Close");
  const copy = h("button", { onclick: () => navigator.clipboard?.writeText(toCsv(found)) }, "Copy as CSV");
  dialog.append(h("header", h("h2", found.title), copy, close), h("div.scroll", { tabIndex: 0 }, numbersTable(found)));
  (document.querySelector(".headwork") ?? document.body).append(dialog);
  dialog.showModal();
}

export function numbersTable({ rowNames, columnNames, values, shape, title }) {
  const [rows, columns] = shape;
  const name = (names, i) => names?.[i] ?? String(i); // as tensors are counted
  const [shown, wide] = [rows, columns].map((n) => Math.min(n, MOST_ROWS));
  const head = h("tr", h("td", ""), times(wide, (j) => h("th", { scope: "col" }, name(columnNames, j))));
  const body = times(shown, (i) =>
    h("tr", h("th", { scope: "row" }, name(rowNames, i)), times(wide, (j) => h("td", format(values[i * columns + j])))),
  );
  const cut = rows > shown || columns > wide ? `; the first ${MOST_ROWS} rows and columns, all are in the CSV` : "";
  return h("table", h("caption", `${title}: ${rows} x ${columns}${cut}`), h("thead", head), h("tbody", body));
}

// Enough digits to find the same float32 again.
export const format = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(9))) : String(value));

function toCsv({ rowNames, columnNames, values, shape }) {
  const quoted = (text) => `"${String(text).replaceAll('"', '""')}"`;
  const lines = [["", ...times(shape[1], (j) => quoted(columnNames?.[j] ?? j))].join(",")];
  for (let i = 0; i < shape[0]; i++) {
    const row = Array.from(values.subarray(i * shape[1], (i + 1) * shape[1]), format);
    lines.push([quoted(rowNames?.[i] ?? i), ...row].join(","));
  }
  return lines.join("\n");
}

function save(blob, name) {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

const fileName = (title) => title.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-").replaceAll(/^-|-$/g, "") || "picture";

const asBlob = (svg) => new Blob([svg], { type: "image/svg+xml" });

function saveSvg(found) {
  if (found) save(asBlob(toSvg(found)), `${fileName(found.title)}.svg`);
}

async function savePng(found) {
  if (!found) return;
  const image = h("img", { src: URL.createObjectURL(asBlob(toSvg(found))) });
  await image.decode();
  URL.revokeObjectURL(image.src);
  const canvas = h("canvas", { width: 2 * image.width, height: 2 * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => save(blob, `${fileName(found.title)}.png`));
}
