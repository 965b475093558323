// The page with answers inside: what was asked when it was made is answered again, from disk, without a server.
import { isLast, Refused } from "./ask.js";
import { Frames } from "./frames.js";
import { mount } from "./mount.js";
import { words } from "./words.js";

// A question as text, without what is left at its default, its fields in order.
function key(value) {
  if (Array.isArray(value)) return `[${value.map(key)}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const kept = Object.keys(value).sort().filter((name) => value[name] !== null && value[name] !== undefined && !(Array.isArray(value[name]) && !value[name].length) && !(name === "model" && value[name] === 0));
  return `{${kept.map((name) => `${name}:${key(value[name])}`)}}`;
}

export function recordedAsk(data) {
  const answers = new Map(data.map(([question, text]) => [key(question), text]));
  function* answered(question) {
    const text = answers.get(key(question));
    if (text === undefined) throw new Refused(words.notRecorded);
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    for (const part of new Frames().push(bytes)) if (!isLast(part)) yield part;
  }
  return async function* ask({ map, ...question }) {
    yield* answered(question);
    if (map) yield* answered({ question: "Map", about: question.about, attention: map[0], head: map[1] });
  };
}

mount(document.getElementById("page"), recordedAsk(JSON.parse(document.getElementById("recorded").textContent)), { note: words.recorded });
