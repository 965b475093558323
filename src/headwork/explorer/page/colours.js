// Weights as colours: one hue, from the colour of the page to the strongest; and two hues for less and more.

const LIGHT = ["#ffffff", "#dbe6fb", "#9dbcf3", "#4a7bdc", "#153a91"];
const DARK = ["#171a21", "#1d3a70", "#3468c8", "#86b4ff", "#eaf2ff"];
const LESS_MORE_LIGHT = ["#b3470b", "#f0a168", "#ffffff", "#86aef0", "#1a45a8"];
const LESS_MORE_DARK = ["#ffb27a", "#b3521a", "#171a21", "#2f63bf", "#a8c8ff"];

const HUES = ["#d1495b", "#2c5fc9", "#2e7d4f", "#b85c00", "#8a3ea8", "#0b7a86", "#7a5c00", "#5b5f97", "#a23e74"];
// Of the head with this number.
export const hue = (i) => HUES[i % HUES.length];

const query = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
let chosen = null;

export const isDark = () => (chosen ?? (query?.matches ? "dark" : "light")) === "dark";
export function chooseTheme(theme) {
  chosen = theme;
}
export const onSchemeChange = (listener) => query?.addEventListener("change", listener);

const tables = new Map();
function table(stops) {
  if (tables.has(stops)) return tables.get(stops);
  const rgb = stops.map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  const made = new Uint8ClampedArray(256 * 3);
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    for (let c = 0; c < 3; c++) made[3 * i + c] = rgb[low][c] + (at - low) * (rgb[low + 1][c] - rgb[low][c]);
  }
  tables.set(stops, made);
  return made;
}

export const weightTable = () => table(isDark() ? DARK : LIGHT);
export const differenceTable = () => table(isDark() ? LESS_MORE_DARK : LESS_MORE_LIGHT);

const css = (rgb, i) => `rgb(${rgb[3 * i]} ${rgb[3 * i + 1]} ${rgb[3 * i + 2]})`;
const byte = (x) => Math.max(0, Math.min(255, Math.round(255 * x)));

// A share from 0 to 1 as a colour, and the colour of text that can be read on it.
export const weightColour = (share) => css(weightTable(), byte(share));
export const differenceColour = (share) => css(differenceTable(), byte((share + 1) / 2));
export function tint(element, share) {
  const background = weightColour(share);
  Object.assign(element.style, { background, color: inkOn(background) });
}
export function inkOn(colour) {
  const [r, g, b] = colour.match(/\d+/g).map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  const light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return (light + 0.05) / 0.05 > 1.05 / (light + 0.05) ? "#000000" : "#ffffff"; // whichever has more contrast
}
