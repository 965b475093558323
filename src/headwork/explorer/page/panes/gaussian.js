// Gaussian heads as discs on the grid of patches: drag them, resize them, and everything follows.
import { bars } from "../bars.js";
import { hue } from "../colours.js";
import { ARROWS, h, on, percent, put, s, set } from "../dom.js";
import { pane } from "../pane.js";
import { words } from "../words.js";

const UNIT = 40; // pixels for a patch
const SELDOM = 150; // milliseconds between two convolutions
const radiusOf = (alpha) => Math.sqrt(Math.LN2 / alpha);
const alphaOf = (radius) => Math.LN2 / radius ** 2;

export function gaussianPane(context) {
  const { described, store, session, newLive } = context;
  let layer = 0;
  let chosen = 0;
  const board = s("svg.board", { role: "group", "aria-label": "where the heads look, seen from the patch in the middle" });
  const says = h("p.says", { "aria-live": "polite" });
  const bound = h("div");
  const saved = h("p.note", { "aria-live": "polite" });
  const nearest = newLive("convolution", (part) => showBound(part), bound);
  const save = newLive("save", ({ header }) => (saved.textContent = `Saved as ${header.folder}.`), saved);
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
    store.set({ moved: [...kept, { attention, head: i, centre: clamped, alpha: Math.max(1e-3, Math.min(400, alpha)) }] });
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
      const colour = hue(i);
      const circle = s("circle.disc", { fill: colour, stroke: colour, tabindex: 0, role: "slider", "aria-orientation": "vertical", "aria-valuemin": -grid[0], "aria-valuemax": grid[0] });
      const rim = s("circle.rim");
      const label = s("text.disc-name", String(i));
      drag(circle, i, (start, by) => move(i, [start.centre[0] + by[0], start.centre[1] + by[1]], start.alpha));
      drag(rim, i, (start, by, at) => move(i, start.centre, alphaOf(Math.max(0.05, Math.hypot(at[0] - start.centre[0], at[1] - start.centre[1])))));
      on(circle, "keydown", (event) => key(event, i));
      on(circle, "focus", () => store.set({ focus: [here().attention, i] }));
      discs.push({ circle, rim, label });
    });
    // The widest first, so that none lies over a smaller one.
    const order = discs.map((_, i) => i).sort((a, b) => head(a).alpha - head(b).alpha);
    board.replaceChildren(...cells, ...order.flatMap((i) => [discs[i].circle, discs[i].rim]), ...discs.map(({ label }) => label));
    place();
  }
  function key(event, i) {
    const { centre, alpha } = head(i);
    const step = event.shiftKey ? 1 : 0.25;
    if (event.key in ARROWS) move(i, centre.map((c, axis) => c + step * ARROWS[event.key][axis]), alpha);
    else if (event.key === "+" || event.key === "=") move(i, centre, alpha / 1.3);
    else if (event.key === "-") move(i, centre, alpha * 1.3);
    else return;
    event.preventDefault();
  }
  function drag(element, i, act) {
    let start = null;
    let toBoard = null;
    const place = (event) => {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(toBoard);
      return [point.y / UNIT, point.x / UNIT];
    };
    on(element, "pointerdown", (event) => {
      element.setPointerCapture(event.pointerId);
      toBoard = board.getScreenCTM().inverse();
      store.set({ focus: [here().attention, i] });
      start = { at: place(event), ...head(i) };
      session.dragging = true;
      event.preventDefault();
    });
    on(element, "pointermove", (event) => {
      if (!start) return;
      const at = place(event);
      act(start, [at[0] - start.at[0], at[1] - start.at[1]], at);
    });
    const end = () => {
      start = null;
      session.dragging = false;
      askBound();
    };
    on(element, "pointerup", end);
    on(element, "pointercancel", end);
  }
  function place() {
    discs.forEach(({ circle, rim, label }, i) => {
      const { centre, alpha, moved } = head(i);
      const [y, x, r] = [centre[0] * UNIT, centre[1] * UNIT, radiusOf(alpha) * UNIT];
      for (const part of [circle, rim]) set(part, { cx: x, cy: y, r: Math.max(r, 7) });
      set(label, { x, y: y + 5 });
      set(circle, { "aria-label": `head ${i}`, "aria-valuenow": centre[0].toFixed(2), "aria-valuetext": sentence(i) });
      circle.classList.toggle("moved", moved);
    });
    undo.disabled = keep.disabled = !store.get("moved").length;
    tell(chosen);
  }
  function sentence(i) {
    const { centre, alpha } = head(i);
    const way = (v, less, more) => (Math.abs(v) < 0.05 ? null : `${Math.abs(v).toFixed(1)} ${v < 0 ? less : more}`);
    const where = [way(centre[0], "up", "down"), way(centre[1], "left", "right")].filter(Boolean).join(" and ");
    return `${described.attention[here().attention].short}, head ${i} looks ${where ? `${where} of the patch` : "at the patch itself"}; half of its weight lies within ${radiusOf(alpha).toFixed(1)} patches of there (alpha ${alpha.toPrecision(2)})`;
  }
  const tell = (i) => (says.textContent = sentence(i));

  // While a head is dragged the convolution follows more slowly than the answer, which is to be as quick as it can be.
  function askBound() {
    if (!described.can.includes("Convolution") || (session.dragging && nearest.busy)) return;
    const question = () => ({ question: "Convolution", about: session.about(), attention: here().attention, kernel_size: Number(kernel.value) });
    nearest.question(question, { after: session.dragging ? SELDOM : 0 });
  }
  function showBound({ header, arrays }) {
    const { single_pixel, probabilities } = arrays;
    const size = `${header.kernel_size} x ${header.kernel_size}`;
    const best = probabilities ? probabilities.data.reduce((b, p, i) => (p > probabilities.data[b] ? i : b), 0) : null;
    put(
      bound,
      h("h3", "Could a convolution do the same?"),
      h("p", `A ${size} convolution takes from the ${size} patches around each patch, with a fixed number for each. It copies a head exactly if all of its weight lies on one of them. So much lies on the strongest:`),
      bars(Array.from(single_pixel.data, (value, i) => ({ name: `head ${i}`, value }))),
      probabilities ? h("p", "With the nearest convolutions instead of all heads, the model would say ", h("strong", described.labels?.[best] ?? String(best)), ` (${percent(probabilities.data[best])}); with its heads it says `, h("strong", store.get("reading")?.header.answer.top[0].name ?? ""), ".") : null,
      h("p", "For inputs between -1 and 1, each number that this layer gives would change by ", h("strong", Number(header.error_bound).toPrecision(2)), " at most."),
    );
  }
  const undo = h("button", { onclick: () => store.set({ moved: [] }) }, "Put all back");
  const keep = h("button", { onclick: () => save.question({ question: "Save", about: session.about() }) }, "Save as a new model");
  const layers = h("select", { onchange: (event) => store.set({ focus: [described.gaussian[Number(event.target.value)].attention, 0] }) }, described.gaussian.map(({ attention }, i) => h("option", { value: i }, described.attention[attention].short)));
  store.on(["moved"], () => {
    place();
    askBound();
  });
  store.on(["reading"], () => !session.dragging && askBound());
  // The head in focus is the one that is spoken of, and its layer the one that is shown.
  const follow = () => {
    const [attention, i] = store.get("focus") ?? [];
    const number = described.gaussian.findIndex((each) => each.attention === attention);
    if (number < 0) return;
    [chosen, layers.value] = [i, number];
    if (number === layer) return tell(i);
    layer = number;
    build();
    askBound();
  };
  build();
  store.on(["focus"], follow);
  follow();
  const numbers = () => ({ title: "Gaussian heads", rowNames: here().centre.map((_, i) => `head ${i}`), columnNames: ["row", "column", "alpha"], values: Float64Array.from(here().centre.flatMap((_, i) => [...head(i).centre, head(i).alpha])), shape: [here().centre.length, 3], low: -3, high: 3 });
  return pane(
    "gaussian",
    words.gaussian,
    words.gaussianAbout,
    numbers,
    h("div.row", h("label", "Layer ", layers), h("label", "kernel ", kernel), undo, described.can.includes("Save") ? keep : null),
    h("div.two", h("div", board, says, h("p.note", "By keyboard: Tab to a disc, arrow keys move it (with Shift a whole patch), + and - resize it.")), h("div", bound, saved)),
  );
}
