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
    this.reading = new Live(ask, "reading", (part) => this.hasRead(part), failed);
    this.map = new Live(ask, "map", (part) => store.set({ map: { ...part, about: this.asked } }), failed);
    this.before = new Live(ask, "before", (part) => store.set({ before: part }), () => store.set({ before: null }));
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
    this.reading.question({ question: "Read", about }, { after }).then(() => {
      if (this.later) {
        this.later = false;
        this.read(new Set(["moved"]));
      }
    });
    if (off.length || moved.length) this.before.question({ question: "Read", about: { ...about, off: [], moved: [] } }, { after });
    else this.store.set({ before: null });
    if (this.described.n_models > 1) this.second.question({ question: "Read", about: { input, model: 1 - about.model } }, { after });
  }

  hasRead(part) {
    this.patience = PATIENCE[0];
    this.store.set({ reading: part, error: null, busy: false });
    this.askMap();
  }

  askMap() {
    const { focus, reading } = this.store.values;
    if (!reading || !focus || !this.described.attention.length) return;
    this.map.question({ question: "Map", about: this.asked, attention: focus[0], head: focus[1] });
  }
}
