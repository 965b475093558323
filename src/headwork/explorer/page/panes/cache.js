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
    const { bytes, n_tokens } = found.with.at(-1);
    note.textContent = `After the first token, ${mean(found.with).toFixed(1)} ms for each with the cache and ${mean(found.without).toFixed(1)} ms without; the cache holds ${(bytes / 1024).toFixed(0)} KiB for ${n_tokens} tokens, ${(bytes / n_tokens).toFixed(0)} bytes for each.`;
  };
  function time() {
    const values = Float64Array.from(found.with.flatMap((row, i) => [row.n_tokens, row.milliseconds, found.without[i]?.milliseconds ?? NaN]));
    return { kind: "lines", title: "Milliseconds for each token", values, shape: [found.with.length, 3], columnNames: ["tokens", "with the cache", "without"], xName: "tokens read", yName: "ms for a token" };
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
  return pane("cache", words.cache, words.cacheAbout, () => (found.with.length ? time() : null), h("div", { class: "row" }, h("button", { onclick: run }, `Continue ${N_TOKENS} tokens, with and without`)), note, charts);
}
