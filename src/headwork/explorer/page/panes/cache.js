// Bytes and milliseconds for each new token, with the cache and without.
import { h, put } from "../dom.js";
import { pane } from "../pane.js";
import { chart } from "../vector.js";
import { words } from "../words.js";

const N_TOKENS = 32;

export function cachePane(context) {
  const { described, store, session, newLive } = context;
  const charts = h("div.charts");
  const note = h("p.note", { "aria-live": "polite" });
  const found = { with: [], without: [] };
  const lives = {
    with: newLive("cached", ({ header }) => (found.with.push(header), draw()), note),
    without: newLive("uncached", ({ header }) => (found.without.push(header), draw()), note),
  };
  const run = async () => {
    found.with = [];
    found.without = [];
    note.textContent = words.thinking;
    const about = session.about();
    if (described.input === "text pair" && about.input.text) about.input = { target: "", ...about.input }; // what the model wrote, from its first token on
    const question = { question: "Continue", about, n_tokens: N_TOKENS, temperature: 1, seed: 1 };
    if (await lives.with.question({ ...question, cache: true })) await lives.without.question({ ...question, cache: false });
    if (!found.without.length) return;
    if (found.with.length === 1) return (note.textContent = "The model ended its text after one token: there is nothing to compare.");
    const mean = (rows) => rows.slice(1).reduce((n, r) => n + r.milliseconds, 0) / (rows.length - 1);
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
    put(charts, chart(time()), chart(memory()));
  };
  store.on(["repaint"], draw);
  return pane("cache", words.cache, words.cacheAbout, () => (found.with.length ? time() : null), h("div.row", h("button", { onclick: run }, `Continue ${N_TOKENS} tokens, with and without`)), note, charts);
}
