// Make elements: h("button.tool", {onclick: f}, "text", child); an element without properties is h("p.note", "text").
const maker = (create) => (tag, ...rest) => {
  const [name, ...classes] = tag.split(".");
  const element = create(name);
  element.classList.add(...classes);
  const hasProperties = rest[0]?.constructor === Object;
  return fill(element, hasProperties ? rest[0] : {}, hasProperties ? rest.slice(1) : rest);
};

export const h = maker((name) => Object.assign(document.createElement(name), name === "button" ? { type: "button" } : {}));
export const s = maker((name) => document.createElementNS("http://www.w3.org/2000/svg", name));

const kept = (children) => children.flat(Infinity).filter((child) => (child ?? false) !== false);

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if ((value ?? false) === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name in element && !element.namespaceURI.endsWith("svg") && !name.startsWith("aria")) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...kept(children));
  return element;
}

// Put other children in.
export function put(element, ...children) {
  element.replaceChildren(...kept(children));
  return element;
}

// Attributes; one that stays as it is costs the browser nothing.
export const set = (element, attributes) => Object.entries(attributes).forEach(([name, value]) => element.getAttribute(name) === String(value) || element.setAttribute(name, value));
// What may be too wide for its place, such as a table.
export const scrolling = (label, child) => h("div.scroll", { tabIndex: 0, role: "group", "aria-label": label }, child);
export const on = (element, name, listener) => element.addEventListener(name, listener);

// The way of each arrow key, in rows and columns.
export const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

// [make(0), make(1), ...]
export const times = (n, make) => Array.from({ length: n }, (_, i) => make(i));

let serial = 0;
export const newId = (word) => `hw-${word}-${++serial}`;

// A share in percent, with as many digits as matter: 100 %, 99.7 %, 43 %, 0.3 %, <0.1 %.
export const percent = (p) => `${p === 0 ? 0 : p < 0.001 ? "<0.1" : p < 0.01 || (p >= 0.995 && p < 0.9995) ? (100 * p).toFixed(1) : (100 * p).toFixed(0)} %`;

export const short = (n) =>
  Math.abs(n) >= 1e9 ? `${(n / 1e9).toFixed(2)} G` : Math.abs(n) >= 1e6 ? `${(n / 1e6).toFixed(2)} M` : Math.abs(n) >= 1e4 ? `${(n / 1e3).toFixed(1)} k` : `${n}`;
