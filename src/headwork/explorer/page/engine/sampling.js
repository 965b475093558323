// From the scores of all tokens to one of them.

// Scores are divided by the temperature, then cut to the best topK, then to the fewest that reach topP together.
export function probabilities(logits, { temperature = 1, topK = null, topP = null } = {}) {
  const best = Math.max(...logits);
  let scores = Array.from(logits, (logit) => (logit - best) / Math.max(temperature, 1e-38));
  if (topK) {
    const least = [...scores].sort((a, b) => b - a)[Math.min(topK, scores.length) - 1];
    scores = scores.map((score) => (score < least ? -Infinity : score));
  }
  if (topP && topP < 1) {
    const shares = softmax(scores);
    let reached = 0;
    for (const id of bestFirst(shares)) {
      if (reached >= topP) scores[id] = -Infinity;
      reached += shares[id];
    }
  }
  return softmax(scores);
}

export function softmax(scores) {
  const best = Math.max(...scores);
  const shares = Array.from(scores, (score) => Math.exp(score - best));
  const total = shares.reduce((sum, share) => sum + share, 0);
  return shares.map((share) => share / total);
}

// The ids, the largest number first; of equal ones the smaller id.
export function bestFirst(numbers) {
  return Array.from(numbers.keys()).sort((a, b) => numbers[b] - numbers[a] || a - b);
}

// One id: the likeliest at temperature 0, else one by chance.
export function pick(logits, settings, random) {
  if (settings.temperature === 0) return bestFirst(logits)[0];
  const shares = probabilities(logits, settings);
  let left = random();
  for (const [id, share] of shares.entries()) {
    left -= share;
    if (left < 0) return id;
  }
  return bestFirst(shares)[0]; // what rounding has left over
}

// Random numbers in [0, 1), the same for the same seed: "mulberry32" (Tommy Ettinger, 2017).
export function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
