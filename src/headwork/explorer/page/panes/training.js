// How the run went: its curves, the heads at each checkpoint, and the ways of Gaussian heads.
import { hue } from "../colours.js";
import { h, put, s } from "../dom.js";
import { pane } from "../pane.js";
import { chart } from "../vector.js";
import { words } from "../words.js";

export function trainingPane({ described, store, newLive }) {
  const losses = h("div");
  const ways = h("div");
  const note = h("p.note");
  let found = null;
  const live = newLive("training", ({ header }) => show((found = header)), note);
  const names = described.checkpoints.map(({ name }) => name);
  const label = h("output");
  const slider = h("input", { type: "range", min: 0, max: names.length, value: names.length, id: "hw-checkpoint", oninput: () => store.set({ checkpoint: names[Number(slider.value)] ?? null }) });
  const update = () => {
    const at = names.indexOf(store.get("checkpoint"));
    slider.value = at < 0 ? names.length : at;
    label.textContent = store.get("checkpoint") ?? "the model that was opened";
    slider.setAttribute("aria-valuetext", label.textContent);
  };
  store.on(["checkpoint"], update);
  update();

  function curves() {
    if (!found?.metrics.length) return null;
    const steps = [...new Set(found.metrics.filter((row) => row.split !== "test").map((row) => row.step))].sort((a, b) => a - b);
    const at = new Map(found.metrics.map((row) => [`${row.split} ${row.step}`, row.loss]));
    const values = Float64Array.from(steps.flatMap((step) => [step, at.get(`train ${step}`) ?? NaN, at.get(`valid ${step}`) ?? NaN]));
    return { kind: "lines", title: "Loss over the steps", values, shape: [steps.length, 3], columnNames: ["step", "train", "valid"], xName: "step", yName: "loss" };
  }
  function show() {
    const data = curves();
    if (data) put(losses, chart(data));
    const test = found.metrics.find((row) => row.split === "test");
    note.textContent = test ? `On the test data: ${Object.entries(test).filter(([name]) => !["step", "epoch", "split"].includes(name)).map(([name, v]) => `${name.replaceAll("_", " ")} ${Number(v).toPrecision(4)}`).join(", ")}.` : "";
    if (found.centres.length > 1) put(ways, centresOverTime());
  }
  // A slider over the evaluations, and the heads of each Gaussian layer where they were then.
  function centresOverTime() {
    const last = found.centres.length - 1;
    const layers = Object.keys(found.centres[last].layers);
    const boards = layers.map((name) => {
      const board = s("svg.board.small", { viewBox: "-240 -240 480 480", role: "img", "aria-label": `centres of ${name}` });
      return h("figure", board, h("figcaption", name.replace("layers.", "layer ")));
    });
    const output = h("output");
    const draw = (t) => {
      output.textContent = `evaluation ${t + 1} of ${last + 1}`;
      layers.forEach((name, k) => {
        const parts = [s("path.axes-lines", { d: "M-240 0H240M0 -240V240" })];
        found.centres[last].layers[name].centre.forEach((_, i) => {
          const path = found.centres.slice(0, t + 1).map((each) => each.layers[name].centre[i]);
          parts.push(s("polyline.way", { stroke: hue(i), points: path.map(([r, c]) => `${40 * c},${40 * r}`).join(" ") }));
          const [r, c] = path.at(-1);
          parts.push(s("circle", { cx: 40 * c, cy: 40 * r, r: 15, fill: hue(i) }), s("text", { x: 40 * c, y: 40 * r + 7, class: "disc-name" }, String(i)));
        });
        boards[k].firstChild.replaceChildren(...parts);
      });
    };
    const time = h("input", { type: "range", min: 0, max: last, value: last, oninput: () => draw(Number(time.value)) });
    draw(last);
    return [h("h3", "Where the Gaussian heads looked"), h("label.slider.wide", h("span", "time"), time, output), h("div.lens-layers", boards)];
  }
  store.on(["repaint"], () => found && show());
  live.question({ question: "Training" });
  return pane("training", words.training, words.trainingAbout, curves, names.length ? h("label.slider.wide", { htmlFor: "hw-checkpoint" }, h("span", "checkpoint"), slider, label) : null, note, losses, ways);
}
