import { h, percent, put } from "../dom.js";
import { saidBy } from "../said.js";
import { words } from "../words.js";

// One head after the other is switched off for a moment, beside those that are: what becomes of the answer?
export function tryEachOff({ described, store, session, newLive }, cells, isOff) {
  const note = h("p", { class: "note", "aria-live": "polite" });
  const button = h("button", { onclick: () => run() }, words.tryAll);
  const isPair = described.input === "text pair";
  const shareOf = ({ header }, id) => header.answer.top.find((each) => each.id === id)?.probability ?? 0;
  const name = described.input === "text" ? words.quote : String;
  let found = null;
  const live = newLive("try", (part) => (found = part), (sentence) => (note.textContent = sentence));
  const clear = () => {
    for (const { effect } of cells) put(effect);
    note.textContent = "";
  };
  store.on(["reading"], () => (live.stop(), clear()));

  async function run() {
    const { reading, off } = store.values;
    if (!reading?.header.answer.top.length) return;
    clear();
    const [{ id }, was] = [reading.header.answer.top[0], saidBy(reading)];
    const before = shareOf(reading, id);
    const tried = cells.filter((cell) => !isOff(cell));
    let most = null;
    for (const [i, cell] of tried.entries()) {
      note.textContent = `${i + 1} of ${tried.length} heads`;
      const about = { ...session.asked, off: [...off, [cell.a, cell.head]] };
      if (!(await live.question({ question: "Read", about }))) return;
      const [now, after] = [saidBy(found), isPair ? null : shareOf(found, id)];
      const changes = now !== was;
      const moves = !isPair && Math.abs(before - after) >= 0.005;
      put(cell.effect, changes ? h("strong", {}, `→ ${now}`) : moves ? `${percent(before).slice(0, -2)} → ${percent(after)}` : "same answer");
      const loss = (changes ? 1 : 0) + (isPair ? 0 : before - after);
      if (loss > (most?.loss ?? 0)) most = { cell, loss, now, after, changes };
    }
    note.textContent = most ? verdict(most, was, before) : `It stays ${name(was)} without any one of them.`;
  }
  function verdict({ cell, now, after, changes }, was, before) {
    const head = `${described.attention[cell.a].short}, head ${cell.head}`;
    if (changes) return `The answer needs ${head}: without it, ${name(was)} becomes ${name(now)}. Untick it to see.`;
    return `No single head turns the answer. ${head} is missed most: without it, ${name(was)} goes from ${percent(before)} to ${percent(after)}. Untick it, then try again.`;
  }
  return { button, note };
}
