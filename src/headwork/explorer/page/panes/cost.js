import { pane } from "../pane.js";
import { words } from "../words.js";
export function costPane() {
  return pane("cost", words.cost, words.costAbout, null);
}
