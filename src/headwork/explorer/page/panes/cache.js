// Bytes and milliseconds for each new token, with the cache and without.
import { isDark } from "../colours.js";
import { h, put } from "../dom.js";
import { pane } from "../pane.js";
import { linesSvg } from "../vector.js";
import { words } from "../words.js";

const N_TOKENS = 32;

export function cachePane(context) {
  const { described, store, session, newLive } = context;
  const charts = h("div", { class: "charts" });
  const note = h("p", { class: "note", "aria-live": "polite" });
  const found = { with: [], without: [] };
  const fail = (sentence) => (note.textContent = sentence);
  const lives = {
    with: newLive("cached", ({ header }) => (found.with.push(header), draw()), fail),
    without: newLive("uncached", ({ header }) => (found.without.push(header), draw()), fail),
  };
  const run = async () => {
    found.with = [];
    found.without = [];
    note.textContent = words.thinking;
    const question = { question: "Continue", about: session.about(), n_tokens: N_TOKENS, temperature: 1, seed: 1 };
    if (await lives.with.question({ ...question, cache: true })) await lives.without.question({ ...question, cache: false });
    if (!found.without.length) return;
    const mean = (rows) => rows.slice(1).reduce((n, r) => n + r.milliseconds, 0) / Math.max(rows.length - 1, 1);
    note.textContent = `After the first token, ${mean(found.with).toFixed(2)} ms for each with the cache and ${mean(found.without).toFixed(2)} ms without; the cache holds ${(found.with.at(-1).bytes / 1024).toFixed(1)} KiB for ${found.with.at(-1).n_tokens} tokens, ${(found.with.at(-1).bytes / found.with.at(-1).n_tokens).toFixed(0)} bytes for each.`;
  };
  function time() {
    const n = Math.max(found.with.length, found.without.length);
    const values = Float64Array.from({ length: 3 * n }, (_, i) => [found.with[Math.floor(i / 3)]?.n_tokens ?? found.without[Math.floor(i / 3)]?.n_tokens, found.with[Math.floor(i / 3)]?.milliseconds, found.without[Math.floor(i / 3)]?.milliseconds][i % 3] ?? NaN);
    return { kind: "lines", title: "Milliseconds for each token", values, shape: [n, 3], columnNames: ["tokens", "with the cache", "without"], xName: "tokens read", yName: "ms for a token" };
  }
  function memory() {
    const values = Float64Array.from(found.with.flatMap((row) => [row.n_tokens, row.bytes / 1024]));
    return { kind: "lines", title: "Size of the cache", values, shape: [found.with.length, 2], columnNames: ["tokens", "KiB"], xName: "tokens read", yName: "KiB in the cache" };
  }
  const draw = () => {
    if (!found.with.length) return;
    const ink = isDark() ? "#e9ebf1" : "#1b1d23";
    const chart = (data) => {
      const box = h("figure", { class: "chart", role: "img", "aria-label": data.title });
      box.innerHTML = linesSvg({ ...data, ink });
      return box;
    };
    put(charts, chart(time()), chart(memory()));
  };
  store.on(["repaint"], draw);
  return pane("cache", words.cache, words.cacheAbout, () => (found.with.length ? time() : null), h("div", { class: "row" }, h("button", { type: "button", onclick: run }, `Continue ${N_TOKENS} tokens, with and without`)), note, charts);
}
