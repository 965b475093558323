// Ask a question, get its parts one by one: ask(question, {signal}) -> async iterator of {header, arrays}.
import { Frames } from "./frames.js";
import { words } from "./words.js";

// The question has no answer; the message is a sentence for the reader.
export class Refused extends Error {}

// Whoever answers cannot be reached, or the connection broke: a laptop that slept, a program that has ended.
export class Lost extends Refused {}

const PAUSES = [200, 600, 1500]; // milliseconds before a lost question is asked again

// Whether this part only says that there are no more; one that says why there is no answer is thrown.
export function isLast({ header }) {
  if (header.kind === "superseded") throw new DOMException("a newer question has come", "AbortError");
  if (header.kind === "refused") throw new Refused(header.sentence);
  return header.kind === "done";
}

// The questions of one visitor, over HTTP. The newest of a kind (or of a `place`) wins.
export function httpAsk(token, url = "/ask") {
  const visitor = Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(36)).join("");
  let number = 0;
  async function* askOnce(question, signal, place) {
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
      throw new Lost(words.lost);
    }
    if (response.status === 401) throw new Refused("This page has no key. Open the address that `headwork explore` printed.");
    if (response.status === 413) throw new Refused("This input is too large to send: 2 MB at most.");
    if (!response.ok) throw new Refused(`The server refused the question (${response.status}).`);
    const frames = new Frames();
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read().catch((error) => {
        if (error.name === "AbortError") throw error;
        return { done: true };
      });
      if (done) throw new Lost(words.lost); // the last part says that it is the last
      for (const part of frames.push(value)) {
        if (isLast(part)) return;
        yield part;
      }
    }
  }
  return async function* ask(question, { signal, place = question.question } = {}) {
    for (let attempt = 0, begun = false; ; attempt++) {
      try {
        for await (const part of askOnce(question, signal, place)) {
          begun = true;
          yield part;
        }
        return;
      } catch (error) {
        if (error instanceof Lost && begun) throw new Refused(words.brokenOff); // asked again, its parts would come twice
        if (!(error instanceof Lost) || attempt === PAUSES.length) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, PAUSES[attempt]));
      signal?.throwIfAborted();
    }
  };
}

// A place in the page that always wants the newest answer: a new question ends the one before.
export class Live {
  constructor(ask, place, onPart, onError) {
    Object.assign(this, { ask, place, onPart, onError, controller: null, wait: null });
  }

  // Ask now, or after so many milliseconds without another question; one that is a function is made then.
  async question(question, { after = 0 } = {}) {
    this.stop();
    const controller = (this.controller = new AbortController());
    try {
      if (after) await new Promise((resolve) => (this.wait = setTimeout(resolve, after)));
      if (controller.signal.aborted) return false;
      let number = 0;
      for await (const part of this.ask(typeof question === "function" ? question() : question, { signal: controller.signal, place: this.place })) {
        if (controller.signal.aborted) return false;
        this.onPart(part, number++);
      }
      if (this.controller === controller) this.controller = null;
      return true;
    } catch (error) {
      if (error.name === "AbortError" || controller.signal.aborted) return false;
      if (this.controller === controller) this.controller = null;
      this.onError(error instanceof Refused ? error.message : `${error.name}: ${error.message}`, error);
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
