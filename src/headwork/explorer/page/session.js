// What is asked whenever something changes: the forward pass, the same without changes to compare, and the map in focus.
import { Live, Lost } from "./ask.js";

export const TYPING = 25; // milliseconds without a key before a question goes out
const PATIENCE = [1000, 30000]; // milliseconds until a question that got lost is asked again: at first, and at most

export class Session {
  constructor(ask, store, described) {
    Object.assign(this, { ask, store, described });
    this.patience = PATIENCE[0];
    const failed = (sentence, error) => {
      store.set({ error: sentence, busy: false });
      if (!(error instanceof Lost)) return;
      this.again = setTimeout(() => this.read(new Set()), this.patience);
      this.patience = Math.min(2 * this.patience, PATIENCE[1]);
    };
    this.reading = new Live(ask, "reading", (part, number) => (number ? this.hasMap(part) : this.hasRead(part)), failed);
    this.map = new Live(ask, "map", (part) => this.hasMap(part), failed);
    this.before = new Live(ask, "before", (part) => store.set({ before: part }), () => this.forget());
    this.second = new Live(ask, "second", (part) => store.set({ second: part }), () => store.set({ second: null }));
    store.on(["input", "off", "moved", "checkpoint", "model"], (changed) => this.read(changed));
    store.on(["focus"], () => this.askMap());
  }

  about(input = this.store.get("input")) {
    const { off, moved, checkpoint, model } = this.store.values;
    return { input, off, moved, checkpoint, model };
  }

  // A drag waits for its answer, so that each frame is shown; typing waits for a pause.
  read(changed) {
    const { input, off, moved } = this.store.values;
    const about = this.about();
    if (changed.has("moved") && this.reading.busy && this.dragging) {
      this.later = true;
      return;
    }
    clearTimeout(this.again);
    const after = changed.has("input") && (input.text !== undefined || input.ids !== undefined) ? TYPING : 0;
    this.store.set({ busy: true, notice: null });
    this.asked = about;
    const map = this.described.attention.length ? this.store.get("focus") : null;
    this.reading.question({ question: "Read", about, map }, { after }).then(() => {
      if (this.later) {
        this.later = false;
        this.read(new Set(["moved"]));
      }
    });
    if (off.length || moved.length) this.askBefore({ ...about, off: [], moved: [] }, after);
    else this.forget();
    if (this.described.n_models > 1) this.second.question({ question: "Read", about: { input, model: 1 - about.model } }, { after });
  }

  // The same without changes; while a head is dragged it stays the same.
  askBefore(about, after) {
    const key = JSON.stringify(about);
    if (key === this.unchanged) return;
    this.unchanged = key;
    this.before.question({ question: "Read", about }, { after });
  }

  forget() {
    this.before.stop();
    this.unchanged = null;
    this.store.set({ before: null });
  }

  hasRead(part) {
    this.patience = PATIENCE[0];
    this.store.set({ reading: part, error: null, busy: false });
  }

  hasMap(part) {
    const { attention, head } = part.header;
    if (String([attention, head]) === String(this.store.get("focus"))) this.store.set({ map: part });
  }

  askMap() {
    const { focus, reading } = this.store.values;
    if (reading && focus) this.map.question({ question: "Map", about: this.asked, attention: focus[0], head: focus[1] });
  }
}
