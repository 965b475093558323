import { pane } from "../pane.js";
import { words } from "../words.js";
export function gaussianPane() {
  return pane("gaussian", words.gaussian, words.gaussianAbout, null);
}
