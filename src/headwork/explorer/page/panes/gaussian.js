// Gaussian heads as discs on the grid of patches: drag them, resize them, and everything follows.
import { bars } from "../bars.js";
import { h, put, s } from "../dom.js";
import { pane } from "../pane.js";
import { words } from "../words.js";

const HUES = ["#d1495b", "#2c5fc9", "#2e7d4f", "#b85c00", "#8a3ea8", "#0b7a86", "#7a5c00", "#5b5f97", "#a23e74"];
const UNIT = 40; // pixels for a patch
const radiusOf = (alpha) => Math.sqrt(Math.LN2 / alpha);
const alphaOf = (radius) => Math.LN2 / radius ** 2;

export function gaussianPane(context) {
  const { described, store, session, newLive } = context;
  let layer = 0;
  let chosen = 0;
  const board = s("svg", { class: "board", role: "group", "aria-label": "where the heads look, seen from the patch in the middle" });
  const says = h("p", { class: "says", "aria-live": "polite" });
  const bound = h("div", {});
  const saved = h("p", { class: "note", "aria-live": "polite" });
  const nearest = newLive("convolution", (part) => showBound(part), (sentence) => put(bound, h("p", { class: "note" }, sentence)));
  const save = newLive("save", ({ header }) => (saved.textContent = `Saved as ${header.folder}.`), (sentence) => (saved.textContent = sentence));
  const kernel = h("select", { onchange: () => askBound() }, [1, 3, 5].filter((k) => k <= Math.min(...described.gaussian[0].grid)).map((k) => h("option", { value: k, selected: k === 3 }, `${k} x ${k}`)));

  const here = () => described.gaussian[layer];
  function head(i) {
    const moved = store.get("moved").find((m) => m.attention === here().attention && m.head === i);
    return moved ? { centre: moved.centre, alpha: moved.alpha, moved: true } : { centre: here().centre[i], alpha: here().alpha[i], moved: false };
  }
  function move(i, centre, alpha) {
    const { attention } = here();
    const kept = store.get("moved").filter((m) => m.attention !== attention || m.head !== i);
    const clamped = centre.map((c, axis) => Math.max(-here().grid[axis], Math.min(here().grid[axis], Math.round(c * 1e4) / 1e4)));
    chosen = i;
    store.set({ moved: [...kept, { attention, head: i, centre: clamped, alpha: Math.max(1e-3, Math.min(400, alpha)) }], focus: [attention, i] });
  }

  const discs = [];
  function build() {
    const { grid, centre } = here();
    const far = Math.ceil(Math.max(...centre.flat().map(Math.abs)));
    const reach = grid.map((n) => Math.max(4, Math.min(n, far + 2)));
    const [high, wide] = [(2 * reach[0] - 1) * UNIT, (2 * reach[1] - 1) * UNIT];
    board.setAttribute("viewBox", `${-wide / 2} ${-high / 2} ${wide} ${high}`);
    const cells = [];
    for (let r = -reach[0] + 1; r < reach[0]; r++)
      for (let c = -reach[1] + 1; c < reach[1]; c++) cells.push(s("rect", { x: (c - 0.5) * UNIT, y: (r - 0.5) * UNIT, width: UNIT, height: UNIT, class: r || c ? "cell" : "cell middle" }));
    discs.length = 0;
    centre.forEach((_, i) => {
      const circle = s("circle", { class: "disc", fill: HUES[i % HUES.length], tabindex: 0, role: "slider", "aria-orientation": "vertical", "aria-valuemin": -grid[0], "aria-valuemax": grid[0] });
      const rim = s("circle", { class: "rim", stroke: HUES[i % HUES.length] });
      const label = s("text", { class: "disc-name" }, String(i));
      drag(circle, i, (start, by) => move(i, [start.centre[0] + by[0], start.centre[1] + by[1]], start.alpha));
      drag(rim, i, (start, by, at) => move(i, start.centre, alphaOf(Math.max(0.05, Math.hypot(at[0] - start.centre[0], at[1] - start.centre[1])))));
      circle.addEventListener("keydown", (event) => key(event, i));
      circle.addEventListener("focus", () => ((chosen = i), store.set({ focus: [here().attention, i] }), tell(i)));
      discs.push({ circle, rim, label });
    });
    board.replaceChildren(...cells, ...discs.flatMap(({ circle, rim, label }) => [rim, circle, label]));
    place();
  }
  function key(event, i) {
    const { centre, alpha } = head(i);
    const step = event.shiftKey ? 1 : 0.25;
    const moves = { ArrowUp: [-step, 0], ArrowDown: [step, 0], ArrowLeft: [0, -step], ArrowRight: [0, step] };
    if (event.key in moves) move(i, [centre[0] + moves[event.key][0], centre[1] + moves[event.key][1]], alpha);
    else if (event.key === "+" || event.key === "=") move(i, centre, alpha / 1.3);
    else if (event.key === "-") move(i, centre, alpha * 1.3);
    else return;
    event.preventDefault();
    tell(i);
  }
  function drag(element, i, act) {
    let start = null;
    const place = (event) => {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(board.getScreenCTM().inverse());
      return [point.y / UNIT, point.x / UNIT];
    };
    element.addEventListener("pointerdown", (event) => {
      element.setPointerCapture(event.pointerId);
      start = { at: place(event), ...head(i) };
      session.dragging = true;
      event.preventDefault();
    });
    element.addEventListener("pointermove", (event) => {
      if (!start) return;
      const at = place(event);
      act(start, [at[0] - start.at[0], at[1] - start.at[1]], at);
      tell(i);
    });
    const end = () => {
      start = null;
      session.dragging = false;
    };
    element.addEventListener("pointerup", end);
    element.addEventListener("pointercancel", end);
  }
  function place() {
    discs.forEach(({ circle, rim, label }, i) => {
      const { centre, alpha, moved } = head(i);
      const [y, x, r] = [centre[0] * UNIT, centre[1] * UNIT, radiusOf(alpha) * UNIT];
      for (const [name, value] of Object.entries({ cx: x, cy: y, r: Math.max(r, 7) })) circle.setAttribute(name, value);
      for (const [name, value] of Object.entries({ cx: x, cy: y, r: Math.max(r, 7) })) rim.setAttribute(name, value);
      label.setAttribute("x", x);
      label.setAttribute("y", y + 5);
      circle.classList.toggle("moved", moved);
      const text = sentence(i);
      circle.setAttribute("aria-label", `head ${i}`);
      circle.setAttribute("aria-valuenow", centre[0].toFixed(2));
      circle.setAttribute("aria-valuetext", text);
    });
    undo.disabled = keep.disabled = !store.get("moved").length;
  }
  function sentence(i) {
    const { centre, alpha } = head(i);
    const way = (v, less, more) => (Math.abs(v) < 0.05 ? null : `${Math.abs(v).toFixed(2)} ${v < 0 ? less : more}`);
    const where = [way(centre[0], "up", "down"), way(centre[1], "left", "right")].filter(Boolean).join(", ") || "at the patch itself";
    return `head ${i} looks ${where}; half of its weight within ${radiusOf(alpha).toFixed(2)} patches (alpha ${alpha.toPrecision(3)})`;
  }
  const tell = (i) => (says.textContent = sentence(i));

  function askBound() {
    if (!described.can.includes("Convolution") || (session.dragging && nearest.busy)) return;
    nearest.question({ question: "Convolution", about: session.about(), attention: here().attention, kernel_size: Number(kernel.value) });
  }
  function showBound({ header, arrays }) {
    const { single_pixel, probabilities } = arrays;
    const best = probabilities ? probabilities.data.reduce((b, p, i) => (p > probabilities.data[b] ? i : b), 0) : null;
    put(
      bound,
      h("p", {}, `As a ${header.kernel_size} x ${header.kernel_size} convolution, no output of this layer is off by more than `, h("strong", {}, Number(header.error_bound).toPrecision(3)), " for inputs between -1 and 1."),
      probabilities ? h("p", {}, "With convolutions in all layers the model says ", h("strong", {}, described.labels?.[best] ?? String(best)), ` (${(100 * probabilities.data[best]).toFixed(1)} %).`) : null,
      h("p", { class: "note" }, "How much of each head lies on a single patch (1: it is one weight of the kernel):"),
      bars(Array.from(single_pixel.data, (value, i) => ({ name: `head ${i}`, value }))),
    );
  }
  const undo = h("button", { type: "button", onclick: () => store.set({ moved: [] }) }, "Put all back");
  const keep = h("button", { type: "button", onclick: () => save.question({ question: "Save", about: session.about() }) }, "Save as a new model");
  const layers = h("select", { onchange: (event) => ((layer = Number(event.target.value)), build(), store.set({ focus: [here().attention, 0] }), askBound()) }, described.gaussian.map(({ attention }, i) => h("option", { value: i }, described.attention[attention].short)));
  store.on(["moved"], () => {
    place();
    askBound();
  });
  store.on(["reading"], () => !session.dragging && askBound());
  build();
  tell(0);
  const numbers = () => ({ title: "Gaussian heads", rowNames: here().centre.map((_, i) => `head ${i}`), columnNames: ["row", "column", "alpha"], values: Float64Array.from(here().centre.flatMap((_, i) => [...head(i).centre, head(i).alpha])), shape: [here().centre.length, 3], low: -3, high: 3 });
  return pane(
    "gaussian",
    words.gaussian,
    words.gaussianAbout,
    numbers,
    h("div", { class: "row" }, h("label", {}, "Layer ", layers), h("label", {}, "kernel ", kernel), undo, described.can.includes("Save") ? keep : null),
    h("div", { class: "two" }, h("div", {}, board, says, h("p", { class: "note" }, "By keyboard: Tab to a disc, arrow keys move it (with Shift a whole patch), + and - resize it.")), h("div", {}, bound, saved)),
  );
}
