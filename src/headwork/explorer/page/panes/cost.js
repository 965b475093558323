// The trace: every tensor with its shape, and where the FLOPs and bytes go.
import { bars } from "../bars.js";
import { h, put, scrolling, short } from "../dom.js";
import { Heatmap } from "../heatmap.js";
import { pane } from "../pane.js";
import { words } from "../words.js";

export function costPane(context) {
  const { store, session, newLive, whenShown } = context;
  const summary = h("div");
  const points = h("tbody");
  const tensorName = h("p.note");
  const map = new Heatmap({ label: "the numbers of the chosen tensor", largest: 18, most: 420 });
  let found = null;
  let tensor = null;
  const live = newLive("cost", ({ header }) => show((found = header)), summary);
  const look = newLive("tensor", (part) => showTensor((tensor = part)), tensorName);
  const askTensor = (name) => look.question({ question: "Tensor", about: session.asked, name });
  store.on(["repaint"], () => tensor && showTensor(tensor));
  const bytes = (n) => (n >= 2 ** 20 ? `${(n / 2 ** 20).toFixed(1)} MiB` : `${(n / 1024).toFixed(1)} KiB`);

  function show(header) {
    const kinds = Object.entries(header.by_operation);
    put(
      summary,
      h("p", h("strong", `${short(header.flops)}FLOPs`), ` to read this input once; ${short(header.n_parameters)} parameters, the numbers that were learned (${bytes(header.parameter_bytes)}); training would keep ${bytes(header.activation_bytes)} of what is computed.`),
      bars(kinds.map(([name, flops]) => ({ name, value: flops / header.flops, note: short(flops) }))),
      h("p.note", header.verdict),
    );
    const flops = new Map();
    for (const row of header.rows) flops.set(row.name, (flops.get(row.name) ?? 0) + row.flops);
    const chosen = document.activeElement?.dataset?.point;
    put(
      points,
      header.points.map((row) =>
        h(
          "tr",
          h("th", { scope: "row" }, h("button.link", { "data-point": row.name, onclick: () => askTensor(row.name) }, row.name)),
          h("td", row.shape.join(" x "), h("small", row.axes.join(" "))),
          h("td", flops.has(row.name) ? short(flops.get(row.name)) : ""),
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
  const columns = ["name", "shape and axes", "FLOPs"].map((name) => h("th", { scope: "col" }, name));
  const table = scrolling("tensors", h("table.plain", h("thead", h("tr", columns)), points));
  table.classList.add("tall");
  whenShown(() => {
    live.question({ question: "Cost", about: session.asked });
    if (tensor) askTensor(tensor.header.name);
  });
  return pane(
    "cost",
    words.cost,
    words.costAbout,
    picture,
    h("div.two", h("div", summary, table), h("div", tensorName, map.element)),
  );
}
