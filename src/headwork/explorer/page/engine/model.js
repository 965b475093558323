import { models } from "./models.js";
import { Part } from "./part.js";

// A model with its weights: { config, weights }, tensors by name.
export class Model {
  constructor(config, weights) {
    this.config = config;
    this.weights = weights;
  }

  // One forward pass: { logits, points }, where points has what passed each named point, as hw.record does. `edits` are
  // functions of a tensor by the name of a point, as for hw.patch; `weights` are put in the place of the model's own;
  // `resume` says at which layer a stack goes on with which tensor, { layer, x } by the name of the stack.
  run(input, { edits = {}, weights = {}, resume = {} } = {}) {
    const points = {};
    const part = new Part({ weights: { ...this.weights, ...weights }, edits, resume, points });
    const logits = models[this.config.kind](part, this.config, input);
    const missed = Object.keys(edits).filter((name) => !(name in points));
    if (missed.length && !input.cache) throw new Error(`edits must name points that the model passes, got ${missed.join(", ")}`);
    return { logits, points };
  }
}
