// Ask a question, get its parts one by one: ask(question, {signal}) -> async iterator of {header, arrays}.
import { Frames } from "./frames.js";

// The question has no answer; the message is a sentence for the reader.
export class Refused extends Error {}

// The questions of one visitor, over HTTP. The newest of a kind (or of a `place`) wins.
export function httpAsk(token, url = "/ask") {
  const visitor = Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(36)).join("");
  let number = 0;
  return async function* ask(question, { signal, place = question.question } = {}) {
    let response;
    try {
      response = await fetch(url, {
        method: "POST",
        headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
        body: JSON.stringify({ visitor, place, number: ++number, question }),
        signal,
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refused("The program behind this page has ended. Start `headwork explore` again.");
    }
    if (response.status === 401) throw new Refused("This page has no key. Open the address that `headwork explore` printed.");
    if (response.status === 413) throw new Refused("This input is too large to send: 2 MB at most.");
    if (!response.ok) throw new Refused(`The server refused the question (${response.status}).`);
    const frames = new Frames();
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      for (const part of frames.push(value)) {
        if (part.header.kind === "done") return;
        if (part.header.kind === "superseded") throw new DOMException("a newer question has come", "AbortError");
        if (part.header.kind === "refused") throw new Refused(part.header.sentence);
        yield part;
      }
    }
  };
}

// A place in the page that always wants the newest answer: a new question ends the one before.
export class Live {
  constructor(ask, place, onPart, onError) {
    Object.assign(this, { ask, place, onPart, onError, controller: null, wait: null });
  }

  // Ask now, or after so many milliseconds without another question.
  async question(question, { after = 0 } = {}) {
    this.stop();
    const controller = (this.controller = new AbortController());
    try {
      if (after) await new Promise((resolve) => (this.wait = setTimeout(resolve, after)));
      if (controller.signal.aborted) return false;
      let number = 0;
      for await (const part of this.ask(question, { signal: controller.signal, place: this.place })) {
        if (controller.signal.aborted) return false;
        this.onPart(part, number++);
      }
      if (this.controller === controller) this.controller = null;
      return true;
    } catch (error) {
      if (error.name === "AbortError" || controller.signal.aborted) return false;
      if (this.controller === controller) this.controller = null;
      this.onError(error instanceof Refused ? error.message : `${error.name}: ${error.message}`);
      return false;
    }
  }

  get busy() {
    return this.controller !== null;
  }

  stop() {
    clearTimeout(this.wait);
    this.controller?.abort();
    this.controller = null;
  }
}
