import { Refused } from "../ask.js";
import { Reader } from "./generating.js";
import { settingsOf } from "./reading.js";
import { pick, randomNumbers } from "./sampling.js";

// A text or a translation goes on: one part for each token, with what it cost.
export async function* answerContinue(subject, question, pause) {
  const { about, n_tokens: nTokens = 1, temperature = 1, top_k: topK = null, top_p: topP = null, seed = 0, cache = true } = question;
  const { limits } = subject.about;
  if (!(nTokens >= 1 && nTokens <= limits.new_tokens)) throw new Refused(`Between 1 and ${limits.new_tokens} tokens at a time, got ${nTokens}.`);
  if (!(temperature >= 0)) throw new Refused(`temperature must be more than 0 and finite, got ${temperature}.`);
  if (topP !== null && !(topP > 0 && topP <= 1)) throw new Refused(`top_p must lie in (0, 1], got ${topP}.`);
  if (topK !== null && !(topK >= 1)) throw new Refused(`top_k must be 1 or more, got ${topK}.`);
  const settings = settingsOf(subject, about);
  const { input } = subject.encode(about.input, settings);
  const reader = new Reader(subject.model, input, settings, cache);
  const random = randomNumbers(seed);
  const ids = [...(input.target ?? input.ids)];
  const said = [];
  for (let i = 0; i < nTokens; i++) {
    await pause();
    if (ids.length >= limits.tokens) throw new Refused(`The model is shown up to ${limits.tokens} tokens: the text is full.`);
    const start = performance.now();
    const logits = reader.read(ids);
    const milliseconds = performance.now() - start;
    const id = pick(logits, { temperature, topK, topP }, random);
    said.push(id);
    ids.push(id);
    const ended = subject.end.includes(id);
    const header = { id, string: subject.strings([id])[0], milliseconds, bytes: reader.cache?.nBytes() ?? 0, n_tokens: ids.length - 1 };
    yield { header: { ...header, text: subject.decode(said), ended }, arrays: {} };
    if (ended) return;
  }
}
