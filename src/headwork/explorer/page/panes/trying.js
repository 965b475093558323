import { h, percent, put, times } from "../dom.js";
import { isBlank, saidBy } from "../said.js";
import { words } from "../words.js";

const LISTED = 4; // heads that are named

// One head after the other is switched off for a moment, beside those that are: what becomes of the answer?
export function tryEachOff({ described, store, session, newLive }, cells, isOff) {
  const note = h("p.note", { "aria-live": "polite" });
  const button = h("button", { onclick: () => run() }, words.tryAll);
  const isPair = described.input === "text pair";
  // Of a classifier any class can be the goal: then it is shown which head keeps it down.
  const classes = described.output === "class" ? times(described.n_outputs, (i) => h("option", { value: i }, described.labels?.[i] ?? String(i))) : [];
  const goal = h("select", { onchange: () => run() }, h("option", { value: "" }, words.itsAnswer), classes);
  const shareOf = ({ header }, id) => header.answer.top.find((each) => each.id === id)?.probability ?? 0;
  const name = described.input === "text" ? words.quote : String;
  let found = null;
  const live = newLive("try", (part) => (found = part), note);
  const clear = () => {
    for (const { effect } of cells) put(effect);
    note.textContent = "";
  };
  store.on(["reading"], () => (live.stop(), clear()));

  async function run() {
    const { reading, off } = store.values;
    if (!reading?.header.answer.top.length || isBlank(reading)) return;
    clear();
    const [best, was] = [reading.header.answer.top[0].id, saidBy(reading)];
    const id = goal.value ? Number(goal.value) : best;
    const [before, wanted] = [shareOf(reading, id), id === best ? null : goal.selectedOptions[0].text];
    const isMore = (a, b) => (wanted ? a > b : a < b);
    const tried = cells.filter((cell) => !isOff(cell));
    const needed = [];
    let missed = null;
    for (const [i, cell] of tried.entries()) {
      note.textContent = `${i + 1} of ${tried.length} heads`;
      const about = { ...session.asked, off: [...off, [cell.a, cell.head]] };
      if (!(await live.question({ question: "Read", about }))) return;
      const [now, after] = [saidBy(found), isPair ? null : shareOf(found, id)];
      const moves = !isPair && Math.abs(before - after) >= 0.005;
      const turns = now === (wanted ?? now) && now !== was;
      put(cell.effect, turns ? h("strong", `→ ${now}`) : moves ? `${percent(before).slice(0, -2)} → ${percent(after)}` : "same answer");
      if (turns) needed.push({ cell, now });
      else if (!isPair && isMore(after, missed?.after ?? before)) missed = { cell, after };
    }
    note.textContent = needed.length ? turned(needed, was) : missed ? moved(missed, wanted ?? was, before) : `It stays ${name(was)} without any one of them.`;
  }
  const called = ({ cell }) => `${described.attention[cell.a].short}, head ${cell.head}`;
  function turned(needed, was) {
    if (needed.length === 1) return `The answer needs ${called(needed[0])}: without it, ${name(was)} becomes ${name(needed[0].now)}. Untick it to see.`;
    const more = needed.length - LISTED;
    const list = needed.slice(0, LISTED).map((each) => `${called(each)} (${name(each.now)})`).join("; ");
    return `The answer needs ${needed.length} heads. Without any one of them, ${name(was)} becomes something else: ${list}${more > 0 ? `; and ${more} more, in blue below` : ""}. Untick one to see.`;
  }
  const moved = (missed, which, before) => `No single head turns the answer; ${called(missed)} matters most: without it, ${name(which)} goes from ${percent(before)} to ${percent(missed.after)}. Untick it, then try again.`;
  return { button, goal: classes.length ? h("label", words.goal, goal) : null, note };
}
