import { Refused } from "../ask.js";
import { answerContinue } from "./continuing.js";
import { answerConvolution } from "./convolution.js";
import { answerEffects } from "./effects.js";
import { answerLens } from "./lens.js";
import { answerMap, answerRead, answerTensor, readingOf } from "./reading.js";
import { Subject } from "./subject.js";
import { bytesOf } from "./weights.js";

const computed = { Read: answerRead, Map: answerMap, Lens: answerLens, Tensor: answerTensor, Convolution: answerConvolution };
const longestStep = 12; // milliseconds: less than a frame
const streamed = { Effects: answerEffects, Continue: answerContinue };

// The questions of headwork/explorer/questions.py, answered in the browser: ask(question, { signal }) gives the parts
// { header, arrays: { name: { data, shape } } } one by one. `data` is what living.py has put into the page.
export function livingAsk(data) {
  const subject = new Subject(data);
  return async function* ask(question, { signal } = {}) {
    // Before the start and between steps, the page may draw and a newer question may come; then this one ends.
    let rested = -Infinity;
    const pause = async () => {
      if (performance.now() - rested < longestStep) return;
      await new Promise((resolve) => setTimeout(resolve));
      signal?.throwIfAborted();
      rested = performance.now();
    };
    try {
      await pause();
      for await (const part of answersTo(question, subject, data.answers ?? {}, pause)) {
        yield { header: { kind: "part", ...part.header }, arrays: part.arrays };
      }
    } catch (error) {
      if (!signal?.aborted) throw error;
    }
  };
}

async function* answersTo(question, subject, recorded, pause) {
  const name = question.question;
  if (name === "Describe") yield { header: subject.about, arrays: {} };
  else if (name in computed) {
    yield computed[name](subject, question);
    if (question.map) yield answerMap(subject, { about: question.about, attention: question.map[0], head: question.map[1] });
  }
  else if (name in streamed) yield* streamed[name](subject, question, pause);
  else if (name === "Cost") yield costAsRecorded(subject, question, recorded.Cost[0]);
  else if (name in recorded) for (const part of recorded[name]) yield fromText(part);
  else throw new Refused("This page has no answer to that: it computes by itself, without a server.");
}

// The cost depends on how many tokens there are, on nothing else: it is known for as many as there were at first.
function costAsRecorded(subject, { about }, part) {
  const lengths = readingOf(subject, about).encoded.sequences.map((sequence) => sequence.strings.length);
  const known = subject.about.costs_of;
  if (String(lengths) === String(known)) return fromText(part);
  throw new Refused(`In this page the cost is known for ${known.join(" and ")} tokens, and here are ${lengths.join(" and ")}: headwork explore counts any.`);
}

// A part whose arrays are { dtype, shape, base64 }.
function fromText({ header, arrays }) {
  const kinds = { float32: Float32Array, int32: Int32Array, uint8: Uint8Array };
  const read = ([name, { dtype, shape, base64 }]) => [name, { shape, data: new kinds[dtype](bytesOf(base64).buffer) }];
  return { header, arrays: Object.fromEntries(Object.entries(arrays).map(read)) };
}
