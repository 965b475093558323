import { tensor } from "./tensor.js";

// What can be done to a tensor as it passes a named point; each returns a new one.

// The heads with these numbers give zeros: x is [..., head, d].
export function switchOff(heads) {
  return (x) => {
    const [nHeads, d] = x.shape.slice(-2);
    return tensor(x.shape, x.data.map((number, i) => (heads.includes(Math.floor(i / d) % nHeads) ? 0 : number)));
  };
}

// One head gets its values from another tensor.
export function putHead(other, head) {
  return (x) => {
    const [nHeads, d] = x.shape.slice(-2);
    return tensor(x.shape, x.data.map((number, i) => (Math.floor(i / d) % nHeads === head ? other.data[i] : number)));
  };
}

// One token gets its values from another tensor: x is [token, d].
export function putToken(other, token) {
  return (x) => {
    const d = x.shape[1];
    return tensor(x.shape, x.data.map((number, i) => (Math.floor(i / d) === token ? other.data[i] : number)));
  };
}

// The edits of both, those of the second after those of the first.
export function together(first, second) {
  const all = { ...first };
  for (const [name, edit] of Object.entries(second)) all[name] = name in first ? (x) => edit(first[name](x)) : edit;
  return all;
}

// Gaussian heads that look elsewhere, as weights: `moves` are [{ name, head, centre, alpha }], name that of the attention.
export function movedWeights(weights, moves) {
  const moved = {};
  for (const { name, head, centre, alpha } of moves) {
    for (const key of [`${name}.centre`, `${name}.sharpness`]) moved[key] ??= tensor(weights[key].shape, weights[key].data.slice());
    moved[`${name}.centre`].data.set(centre, 2 * head);
    // The sharpness is the logarithm of alpha, one for both directions or one for each: their mean becomes log(alpha).
    const { data, shape } = moved[`${name}.sharpness`];
    const own = data.subarray((head * data.length) / shape[0], ((head + 1) * data.length) / shape[0]);
    const shift = Math.log(alpha) - own.reduce((sum, number) => sum + number, 0) / own.length;
    own.forEach((number, i) => (own[i] = number + shift));
  }
  return moved;
}
