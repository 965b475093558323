import { pane } from "../pane.js";
import { words } from "../words.js";
export function whatifPane() {
  return pane("whatif", words.whatif, words.whatifAbout, null);
}
