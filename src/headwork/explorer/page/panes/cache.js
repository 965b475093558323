import { pane } from "../pane.js";
import { words } from "../words.js";
export function cachePane() {
  return pane("cache", words.cache, words.cacheAbout, null);
}
