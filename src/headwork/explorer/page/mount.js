// The whole page in one element: what the model is, its panes, and how they are linked.
import { Live, Refused } from "./ask.js";
import { chooseTheme, isDark, onSchemeChange } from "./colours.js";
import { h, newId, put, short } from "./dom.js";
import { answerBar } from "./panes/answer.js";
import { cachePane } from "./panes/cache.js";
import { costPane } from "./panes/cost.js";
import { gaussianPane } from "./panes/gaussian.js";
import { headsPane } from "./panes/heads.js";
import { inputPane } from "./panes/input.js";
import { lensPane } from "./panes/lens.js";
import { mapPane } from "./panes/map.js";
import { nextPane } from "./panes/next.js";
import { trainingPane } from "./panes/training.js";
import { whatifPane } from "./panes/whatif.js";
import { Session } from "./session.js";
import { fromAddress, KEPT, Store, toAddress } from "./store.js";
import { words } from "./words.js";

const SELDOM = 300; // milliseconds between two addresses: they cost, and browsers allow no more
const TABS = [
  ["lens", "Lens", lensPane],
  ["next", "Read", nextPane],
  ["whatif", "Effects", whatifPane],
  ["gaussian", "Convolution", gaussianPane],
  ["cache", "Continue", cachePane],
  ["cost", "Cost", costPane],
  ["training", "Training", trainingPane],
];

// options: {address: keep the state in the address, note: a sentence about what kind of page this is}
export async function mount(root, ask, { address = false, note = null } = {}) {
  root.classList.add("headwork");
  put(root, h("p.loading", words.thinking));
  let described;
  try {
    for await (const part of ask({ question: "Describe" })) described = part.header;
  } catch (error) {
    put(root, h("p.error", { role: "alert" }, error instanceof Refused ? error.message : String(error)));
    return;
  }
  const store = new Store(startValues(described, address));
  const session = new Session(ask, store, described);
  const context = { ask, store, session, described, newLive: (place, onPart, onError) => new Live(ask, place, onPart, onError.append ? (sentence) => (onError.textContent = sentence) : onError) };
  build(root, context, note);
  const theme = () => {
    const chosen = store.get("theme");
    if (chosen) root.dataset.theme = chosen;
    else delete root.dataset.theme;
    chooseTheme(chosen);
  };
  theme();
  store.on(["theme"], () => {
    theme();
    store.set({ repaint: {} });
  });
  onSchemeChange(() => store.set({ repaint: {} }));
  if (address) {
    let [next, wait] = [0, null];
    const write = () => {
      next = performance.now() + SELDOM;
      history.replaceState(null, "", location.pathname + toAddress(store.values));
    };
    store.on(KEPT, () => {
      clearTimeout(wait);
      if (session.dragging || performance.now() < next) wait = setTimeout(write, SELDOM);
      else write();
    });
    addEventListener("hashchange", () => store.set(fromAddress(location.hash)));
  }
  session.read(new Set());
  return context;
}

function startValues(described, address) {
  const kept = address ? fromAddress(location.hash) : {};
  const cross = described.attention.findIndex((each) => each.kind === "cross");
  const values = {
    input: described.start,
    off: [],
    moved: [],
    checkpoint: null,
    model: 0,
    focus: described.attention.length ? [Math.max(cross, 0), 0] : null,
    query: null,
    tab: described.gaussian.length ? "gaussian" : "lens",
    other: null,
    axis: "head",
    sampling: { temperature: 1, top_k: 0, top_p: 1 },
    theme: null,
    hover: null,
    ...kept,
  };
  const [attention, head] = values.focus ?? [];
  if (values.focus && !(head < described.attention[attention]?.n_heads)) values.focus = described.attention.length ? [0, 0] : null;
  return values;
}

function build(root, context, note) {
  const { described, store } = context;
  store.on(["error", "busy"], () => {
    root.toggleAttribute("data-stale", Boolean(store.get("error")));
    root.toggleAttribute("data-busy", Boolean(store.get("busy")));
  });
  const input = h("div.column-input", inputPane(context));
  const panes = h(
    "main.panes",
    input,
    described.attention.length ? headsPane(context) : null,
    described.attention.length ? h("div.column-map", mapPane(context)) : null,
    tabs(context),
  );
  put(root, topBar(context, note), answerBar(context, input), panes);
}

function topBar({ described, store }, note) {
  const facts = [
    `${short(described.n_parameters)} parameters`,
    described.attention.length ? `${described.attention.length} attention layers` : "no attention",
    described.attention.length ? `${described.attention.reduce((n, a) => n + a.n_heads, 0)} heads` : null,
  ].filter(Boolean);
  const theme = h("button.tool", { onclick: () => store.set({ theme: isDark() ? "light" : "dark" }) }, "light / dark");
  const models =
    described.n_models > 1 && described.alike
      ? h("label", "Model ", h("select", { onchange: (e) => store.set({ model: Number(e.target.value) }) }, h("option", { value: "0" }, described.name), h("option", { value: "1" }, described.against)))
      : null;
  return h(
    "header.top",
    h("div.top-line", h("h1", described.name), h("span.facts", facts.join(" · ")), models, theme),
    h("p.lead", words.lead(described.input), described.name.endsWith("random weights") ? ` ${words.random}` : "", note ? ` ${note}` : ""),
  );
}

function tabs(context) {
  const { described, store } = context;
  const few = described.output === "class" && described.n_outputs <= 12; // then the answer shows all of them
  const shown = TABS.filter(([name, question]) => described.can.includes(question) && !(name === "next" && (few || described.output === "hidden state")));
  const ids = Object.fromEntries(shown.map(([name]) => [name, [newId("tab"), newId("panel")]]));
  const panels = new Map();
  const body = h("div");
  const buttons = shown.map(([name]) =>
    h(
      "button",
      {
        role: "tab",
        id: ids[name][0],
        "aria-controls": ids[name][1],
        onclick: () => store.set({ tab: name }),
        onkeydown: (event) => {
          const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
          if (!step) return;
          const next = shown[(shown.findIndex(([n]) => n === name) + step + shown.length) % shown.length][0];
          store.set({ tab: next });
          document.getElementById(ids[next][0]).focus();
        },
      },
      name === "next" && described.output !== "next token" ? words.otherNext : words[name],
    ),
  );
  const show = () => {
    const chosen = shown.some(([name]) => name === store.get("tab")) ? store.get("tab") : shown[0]?.[0];
    shown.forEach(([name, , make], i) => {
      const on = name === chosen;
      buttons[i].setAttribute("aria-selected", on);
      buttons[i].tabIndex = on ? 0 : -1;
      if (on && !panels.has(name)) {
        const isShown = () => store.get("tab") === name || (!panels.has(store.get("tab")) && name === chosen);
        const pane = make({ ...context, isShown, whenShown: (ask) => onceForEach(store, isShown, ask) });
        panels.set(name, h("div", { role: "tabpanel", id: ids[name][1], "aria-labelledby": ids[name][0] }, pane));
        body.append(panels.get(name));
      }
      if (panels.has(name)) panels.get(name).hidden = !on;
    });
  };
  show();
  store.on(["tab"], show);
  return h("section.pane.tabs", h("div", { role: "tablist", "aria-label": "Panes" }, buttons), body);
}

// Ask for each forward pass, but not before the pane can be seen.
function onceForEach(store, isShown, ask) {
  let asked = null;
  const look = () => {
    const { reading } = store.values;
    if (!reading || !isShown() || asked === reading) return;
    asked = reading;
    ask();
  };
  store.on(["reading", "tab"], look);
  look();
}
