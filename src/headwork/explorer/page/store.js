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
const MOST_PIXELS = 3072;

export function toAddress(values) {
  const kept = {};
  for (const name of KEPT) {
    const value = values[name];
    if (value === null || value === undefined || (Array.isArray(value) && !value.length)) continue;
    if (value.pixels) {
      if (value.pixels.length > MOST_PIXELS) continue; // too long for an address
      kept[name] = { ...value, pixels: value.pixels.map((v) => Math.round(v * 1e4) / 1e4) };
    } else kept[name] = value;
  }
  const bytes = new TextEncoder().encode(JSON.stringify(kept));
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

export function fromAddress(text) {
  try {
    const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    const found = JSON.parse(new TextDecoder().decode(bytes));
    return Object.fromEntries(KEPT.filter((name) => name in found).map((name) => [name, found[name]]));
  } catch {
    return {};
  }
}
