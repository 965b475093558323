// What the colours of a picture mean: a strip of them between the smallest and the largest.
import { differenceColour, weightColour } from "./colours.js";
import { h } from "./dom.js";
import { glow } from "./image.js";

const SHARES = [0, 0.25, 0.5, 0.75, 1];
const strip = (low, colours, high) => {
  const bar = h("span.strip", { "aria-hidden": "true" });
  bar.style.background = `linear-gradient(90deg, ${colours.join(", ")})`;
  return h("span.legend", low, bar, high);
};

export const weightLegend = (high) => strip("0 %", SHARES.map(weightColour), high);
export const glowLegend = (high) => strip("0 %", SHARES.map(glow), high);
export const differenceLegend = (less, more) => strip(less, SHARES.map((share) => differenceColour(2 * share - 1)), more);
