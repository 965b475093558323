import { activations } from "./activations.js";
import { linear } from "./linear.js";
import { mapNumbers, tensor } from "./tensor.js";

// W2 activation(W1 x), each token for itself; gated: W2 (activation(W_gate x) * W1 x).
export function feedForward(part, x, choice) {
  const up = linear(part.inside("up"), x);
  const activation = activations[choice.activation];
  let hidden;
  if (choice.kind === "GatedFeedForward") {
    const gate = linear(part.inside("gate"), x);
    hidden = tensor(up.shape, up.data.map((number, i) => activation(gate.data[i]) * number));
  } else {
    hidden = mapNumbers(up, activation);
  }
  return part.see(linear(part.inside("down"), part.inside("hidden").see(hidden)));
}
