// The trace: every tensor with its shape, and where the FLOPs and bytes go.
import { bars } from "../bars.js";
import { h, put, short } from "../dom.js";
import { Heatmap } from "../heatmap.js";
import { pane } from "../pane.js";
import { words } from "../words.js";

export function costPane(context) {
  const { store, session, newLive, isShown } = context;
  const summary = h("div", {});
  const points = h("tbody", {});
  const tensorName = h("p", { class: "note" });
  const map = new Heatmap({ label: "the numbers of the chosen tensor", largest: 18, most: 420 });
  let found = null;
  let tensor = null;
  let asked = null;
  const live = newLive("cost", ({ header }) => show((found = header)), (sentence) => put(summary, h("p", { class: "error" }, sentence)));
  const look = newLive("tensor", (part) => showTensor((tensor = part)), (sentence) => (tensorName.textContent = sentence));
  const ask = () => {
    const { reading } = store.values;
    if (!reading || !isShown() || asked === reading) return;
    asked = reading;
    live.question({ question: "Cost", about: session.asked });
    if (tensor) look.question({ question: "Tensor", about: session.asked, name: tensor.header.name });
  };
  store.on(["reading", "tab"], ask);
  store.on(["repaint"], () => tensor && showTensor(tensor));
  const bytes = (n) => (n >= 2 ** 20 ? `${(n / 2 ** 20).toFixed(1)} MiB` : `${(n / 1024).toFixed(1)} KiB`);

  function show(header) {
    const kinds = Object.entries(header.by_operation);
    put(
      summary,
      h("p", {}, h("strong", {}, `${short(header.flops)}FLOPs`), ` for one forward pass; ${short(header.n_parameters)} parameters (${bytes(header.parameter_bytes)}); training would keep ${bytes(header.activation_bytes)}.`),
      bars(kinds.map(([name, flops]) => ({ name, value: flops / header.flops, note: short(flops) }))),
      h("p", { class: "note" }, header.verdict),
    );
    const flops = new Map();
    for (const row of header.rows) flops.set(row.name, (flops.get(row.name) ?? 0) + row.flops);
    const chosen = document.activeElement?.dataset?.point;
    put(
      points,
      header.points.map((row) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, h("button", { class: "link", "data-point": row.name, onclick: () => look.question({ question: "Tensor", about: session.asked, name: row.name }) }, row.name)),
          h("td", {}, row.shape.join(" x ")),
          h("td", { class: "axes" }, row.axes.join(" ")),
          h("td", {}, flops.has(row.name) ? short(flops.get(row.name)) : ""),
        ),
      ),
    );
    if (chosen) points.querySelector(`[data-point="${CSS.escape(chosen)}"]`)?.focus();
  }
  function picture() {
    if (!tensor) return null;
    const { data, shape } = tensor.arrays.values;
    let high = 1e-9;
    for (const v of data) if (Math.abs(v) > high) high = Math.abs(v);
    const [rowAxis, columnAxis] = tensor.header.axes.length === tensor.header.shape.length ? tensor.header.axes.slice(-2) : ["row", "column"];
    return { title: tensor.header.name, values: data, shape, high, signed: true, describe: (row, column) => `${rowAxis ?? "row"} ${row}, ${columnAxis ?? "column"} ${column}: ${data[row * shape[1] + column].toPrecision(3)}` };
  }
  function showTensor({ header, arrays }) {
    const cut = header.shape.length > 2 || header.shape.some((n) => n > 256);
    const number = (v) => Number(v).toPrecision(3);
    tensorName.textContent = `${header.name}, ${header.shape.join(" x ")}: mean ${number(header.mean)}, deviation ${number(header.deviation)}, from ${number(header.low)} to ${number(header.high)}.${cut ? ` Shown: ${arrays.values.shape.join(" x ")}, the first of all other axes.` : ""} Blue is more than 0, orange less.`;
    map.draw(picture());
  }
  ask();
  return pane(
    "cost",
    words.cost,
    words.costAbout,
    picture,
    h("div", { class: "two" }, h("div", {}, summary, h("div", { class: "scroll tall", tabIndex: 0, role: "group", "aria-label": "tensors" }, h("table", { class: "plain" }, h("thead", {}, h("tr", {}, ["name", "shape", "axes", "FLOPs"].map((name) => h("th", { scope: "col" }, name)))), points))), h("div", {}, tensorName, map.element)),
  );
}
