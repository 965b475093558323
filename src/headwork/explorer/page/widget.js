// The page in a notebook: questions and answers are messages between the cell and the kernel.
import { isLast } from "./ask.js";
import { Frames } from "./frames.js";
import { mount } from "./mount.js";

export function render({ model, el }) {
  let number = 0;
  const waiting = new Map(); // by number: what takes the parts
  model.on("msg:custom", ({ number }, buffers) => {
    const view = buffers[0];
    const bytes = new Uint8Array(view.buffer ?? view, view.byteOffset ?? 0, view.byteLength);
    for (const part of new Frames().push(bytes)) waiting.get(number)?.(part);
  });
  async function* ask(question, { signal, place = question.question } = {}) {
    const mine = ++number;
    const parts = [];
    let wake = () => {};
    waiting.set(mine, (part) => (parts.push(part), wake()));
    signal?.addEventListener("abort", () => wake());
    model.send({ place, number: mine, question });
    try {
      for (;;) {
        while (!parts.length && !signal?.aborted) await new Promise((resolve) => (wake = resolve));
        if (signal?.aborted) throw new DOMException("a newer question has come", "AbortError");
        const part = parts.shift();
        if (isLast(part)) return;
        yield part;
      }
    } finally {
      waiting.delete(mine);
    }
  }
  const root = document.createElement("div");
  el.append(root);
  mount(root, ask);
}
