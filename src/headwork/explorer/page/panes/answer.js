// What the model answers, beside what it said before something was changed in it.
import { bars } from "../bars.js";
import { h, percent, put } from "../dom.js";
import { isBlank, saidBy } from "../said.js";
import { words } from "../words.js";

const strong = (text) => h("strong", text || "(nothing)");
const sure = ({ header }) => (header.translation === undefined ? ` (${percent(header.answer.top[0].probability)})` : "");

// What the model says; of a translation that was begun by hand, only what is its own.
function verdict({ described, store }) {
  const { reading } = store.values;
  const { translation, continuation } = reading.header;
  if (isBlank(reading)) return words.blank;
  if (!continuation && continuation !== "") return [`${translation === undefined ? words.says[described.output] : words.says.class} `, strong(saidBy(reading)), sure(reading)];
  const begun = [store.get("input").target === undefined ? "The target begins with " : "You wrote ", h("b", translation || "nothing yet")];
  return continuation ? [begun, "; the model continues ", strong(continuation)] : [begun, "; the model ends it there"];
}

// The same of the model as it was, if something is changed in it.
const unchanged = ({ before, off, moved, reading }) => (before && !isBlank(reading) && (off.length || moved.length) ? [strong(saidBy(before)), sure(before)] : null);

export function answer(context) {
  const { described, store } = context;
  const box = h("div.answer", { "aria-live": "polite", "aria-atomic": "true" });
  const show = () => {
    const { reading, before, second, off, moved } = store.values;
    if (!reading) return;
    const { answer, finite, sequences } = reading.header;
    const parts = [];
    if (!finite) parts.push(h("p.error", { role: "alert" }, words.notFinite));
    if (answer.kind === "hidden state") return put(box, parts, h("p", words.vector));
    parts.push(h("p.verdict", verdict(context)));
    if (isBlank(reading)) return put(box, parts);
    const was = unchanged(store.values);
    if (was) parts.push(h("p.note", `${words.changes(off.length, moved.length)}; ${words.withAll}: `, was));
    if (second) parts.push(h("p.note", `${[described.name, described.against][1 - store.get("model")]} says `, strong(saidBy(second)), sure(second)));
    const old = before ? new Map(before.header.answer.top.map((each) => [each.id, each.probability])) : null;
    const isClass = answer.kind === "class" || answer.kind === "token class";
    const shown = isClass ? [...answer.top].sort((a, b) => (answer.top.length <= 12 ? a.id - b.id : 0)).slice(0, 12) : answer.top.slice(0, 5);
    // The text before may be another than this one, and then its next step is too.
    const same = before && String(before.header.sequences.map((each) => each.ids)) === String(sequences.map((each) => each.ids));
    if (words.stepAt[answer.kind]) parts.push(h("p.note", `${words.stepAt[answer.kind]} ${words.quote(sequences.at(-1).strings[answer.position])}:`));
    parts.push(bars(shown.map((each) => ({ name: each.name, value: each.probability, before: same ? old.get(each.id) : undefined }))));
    put(box, parts);
  };
  store.on(["reading", "before", "second"], show);
  return h("div", h("h3", words.answer), box);
}

// The same in one line at the top of the page, as long as the pane with the answer is out of sight.
export function answerBar(context, pane) {
  const { described, store } = context;
  const line = h("p");
  let inSight = true;
  const show = () => {
    if (inSight || !store.get("reading") || described.output === "hidden state") return put(line);
    const was = unchanged(store.values);
    put(line, verdict(context), was ? ["; before: ", was] : null);
  };
  new IntersectionObserver(([{ isIntersecting }]) => show((inSight = isIntersecting))).observe(pane.querySelector(".answer"));
  store.on(["reading", "before"], show);
  return h("div.answer-bar", { "aria-hidden": "true" }, line);
}

export function answerNumbers({ store }) {
  const top = store.get("reading")?.header.answer.top;
  if (!top?.length) return null;
  return { kind: "bars", title: "Answer", rowNames: top.map((each) => each.name), columnNames: ["probability", "logit"], values: Float64Array.from(top.flatMap((each) => [each.probability, each.logit])), shape: [top.length, 2] };
}
