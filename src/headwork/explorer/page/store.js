// What the page knows; whoever is interested in some of it is told once after it has changed.

export class Store {
  constructor(values) {
    this.values = values;
    this.listeners = [];
    this.changed = new Set();
  }

  get(name) {
    return this.values[name];
  }

  set(values) {
    for (const [name, value] of Object.entries(values)) {
      if (Object.is(this.values[name], value)) continue;
      this.values[name] = value;
      if (!this.changed.size) queueMicrotask(() => this.tell());
      this.changed.add(name);
    }
  }

  on(names, listener) {
    this.listeners.push([names, listener]);
  }

  tell() {
    const changed = this.changed;
    this.changed = new Set();
    for (const [names, listener] of this.listeners) {
      if (names.some((name) => changed.has(name))) listener(changed);
    }
  }
}

// What of it the address keeps, so that a link restores it.
export const KEPT = ["input", "off", "moved", "checkpoint", "model", "focus", "query", "tab", "other", "axis", "sampling", "theme"];
const LONGEST = 40000; // letters of a value that an address has room for

export function toAddress(values) {
  const kept = KEPT.map((name) => [name, values[name]]).filter(([, value]) => (value ?? "").length !== 0 && JSON.stringify(value, shorter).length <= LONGEST);
  return `#${new URLSearchParams({ state: JSON.stringify(Object.fromEntries(kept), shorter) })}`;
}
const shorter = (_, value) => (typeof value === "number" ? Number(value.toPrecision(6)) : value);

export function fromAddress(hash) {
  try {
    const found = JSON.parse(new URLSearchParams(hash.slice(1)).get("state"));
    return Object.fromEntries(KEPT.filter((name) => name in found).map((name) => [name, found[name]]));
  } catch {
    return {};
  }
}
