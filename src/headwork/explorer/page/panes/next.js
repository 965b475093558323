// Probabilities of what comes next, and what temperature, top-k and top-p leave of them; sample, step, continue.
import { bars } from "../bars.js";
import { h, put } from "../dom.js";
import { pane } from "../pane.js";
import { words } from "../words.js";

const SHOWN = 20;

// What each setting leaves: [{id, name, raw, p, cut}], the likeliest first. The order is that of headwork.generation.
export function sampled(logits, top, { temperature, top_k, top_p }) {
  const best = top[0]?.logit ?? 0;
  let [sum, rawSum] = [0, 0];
  for (const logit of logits) {
    sum += Math.exp((logit - best) / temperature);
    rawSum += Math.exp(logit - best);
  }
  let before = 0;
  const sorted = top_k || top_p < 1 ? Float32Array.from(logits).sort().reverse() : null;
  const kSum = top_k ? sorted.subarray(0, top_k).reduce((n, logit) => n + Math.exp((logit - best) / temperature), 0) : sum;
  const least = top_k ? sorted[Math.min(top_k, sorted.length) - 1] : -Infinity;
  const rows = top.map(({ id, name, logit }, i) => {
    const weight = Math.exp((logit - best) / temperature);
    let cut = null;
    if (logit < least) cut = "cut by top-k";
    else if (i && top_p < 1 && before / kSum >= top_p) cut = "cut by top-p";
    before += weight;
    return { id, name, raw: Math.exp(logit - best) / rawSum, weight, cut };
  });
  let kept = rows.filter((row) => !row.cut).reduce((n, row) => n + row.weight, 0);
  if (!rows.some((row) => row.cut) && rows.length < logits.length) kept = top_k ? kSum : sum; // some that stay are not listed
  return rows.map((row) => ({ ...row, p: row.cut ? 0 : row.weight / kept }));
}

export function nextPane(context) {
  const { described, store, session, newLive } = context;
  const goesOn = described.can.includes("Continue");
  const title = described.output === "next token" ? words.next : words.otherNext;
  const list = h("div");
  const note = h("p.note");
  const continued = h("p.continued", { "aria-live": "polite" });
  const slider = (name, label, min, max, step, show) => {
    const id = `hw-${name}`;
    const output = h("output", { htmlFor: id });
    const input = h("input", { type: "range", id, min, max, step, value: store.get("sampling")[name], oninput: () => store.set({ sampling: { ...store.get("sampling"), [name]: Number(input.value) } }) });
    const update = () => {
      input.value = store.get("sampling")[name];
      output.textContent = show(store.get("sampling")[name]);
      input.setAttribute("aria-valuetext", output.textContent);
    };
    update();
    store.on(["sampling"], update);
    return h("label.slider", { htmlFor: id }, h("span", label), input, output);
  };
  const sliders = h(
    "div.sliders",
    slider("temperature", "temperature", 0.1, 2.5, 0.05, (v) => v.toFixed(2)),
    slider("top_k", "top-k", 0, 50, 1, (v) => (v ? String(v) : "all")),
    slider("top_p", "top-p", 0.05, 1, 0.05, (v) => v.toFixed(2)),
  );
  let added = [];
  const live = newLive(
    "continue",
    ({ header }) => {
      added.push(header);
      continued.textContent = header.text;
      if (header.ended) note.textContent = "The model has ended its text.";
    },
    note,
  );
  const go = async (n, greedy) => {
    const { temperature, top_k, top_p } = store.get("sampling");
    added = [];
    const done = await live.question({ question: "Continue", about: session.about(), n_tokens: n, temperature: greedy ? 0 : temperature, top_k: top_k || null, top_p: top_p < 1 ? top_p : null, seed: Math.floor(Math.random() * 2 ** 31) });
    if (done && added.length) append(added);
  };
  const append = (parts) => {
    const input = { ...store.get("input") };
    delete input.example;
    const said = parts.filter((each) => !each.ended);
    if (said.length && described.has_tokenizer && !said.at(-1).text) note.textContent = `The model took ${said.at(-1).string}, which is no text.`;
    const [text, ids] = described.input === "text pair" ? ["target", "target_ids"] : ["text", "ids"];
    if (described.has_tokenizer) input[text] = (input[text] ?? "") + (said.at(-1)?.text ?? "");
    else input[ids] = [...(input[ids] ?? store.get("reading").header.sequences.at(-1).ids), ...said.map((each) => each.id)];
    delete input[described.has_tokenizer ? ids : text];
    store.set({ input });
  };
  const button = (text, onclick) => h("button", { onclick }, text);
  const buttons = [button("Sample one", () => go(1, false)), button("Take the likeliest", () => go(1, true)), button("Continue 24 tokens", () => go(24, false)), button("Stop", () => live.stop())];
  let rows = [];
  const show = () => {
    const { reading, sampling } = store.values;
    if (!reading || !reading.header.answer.top.length) return;
    const { answer } = reading.header;
    rows = goesOn ? sampled(reading.arrays.logits.data, answer.top, sampling) : answer.top.map((each) => ({ ...each, raw: each.probability, p: each.probability }));
    put(list, bars(rows.slice(0, SHOWN).map((row) => ({ name: row.name, value: row.p, before: goesOn ? row.raw : undefined, cut: Boolean(row.cut), note: row.cut })), { most: Math.max(...rows.map((row) => Math.max(row.p, row.raw)), 1e-9) }));
    const cut = rows.filter((row) => row.cut);
    const strings = reading.header.sequences.at(-1).strings;
    const where = answer.position === null ? "" : `After ${words.quote(strings[answer.position])}. `;
    note.textContent = goesOn ? `${where}Grey: as the model gives them. Blue: what is sampled from${cut.length ? `; ${cut.length === rows.length ? "all" : `${cut.length} of the first ${rows.length}`} are cut` : ""}.` : where;
  };
  store.on(["reading", "sampling"], show);
  show();
  const numbers = () =>
    rows.length ? { kind: "bars", title, rowNames: rows.map((row) => row.name), columnNames: ["sampled", "model"], values: Float64Array.from(rows.flatMap((row) => [row.p, row.raw])), shape: [rows.length, 2] } : null;
  return pane("next", title, words.nextAbout[described.output], numbers, goesOn ? [sliders, h("div.row", buttons), continued] : null, note, list);
}
