import { pane } from "../pane.js";
import { words } from "../words.js";
export function trainingPane() {
  return pane("training", words.training, words.trainingAbout, null);
}
