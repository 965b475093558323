import { Cache } from "./cache.js";
import { slice } from "./tensor.js";

// Scores the token after a text that grows: with a cache it reads what it has not read yet, without one all of it again.
export class Reader {
  // input: { ids }, or { source, target } of an encoder-decoder; settings as for Model.run.
  constructor(model, input, settings = {}, isCached = true) {
    Object.assign(this, { model, input, settings, cache: isCached ? new Cache() : null });
  }

  // The logits of what follows these ids.
  read(ids) {
    const name = "source" in this.input ? "target" : "ids";
    const nRead = this.cache?.nTokens ?? 0;
    const { logits } = this.model.run({ ...this.input, [name]: ids.slice(nRead), cache: this.cache }, this.settings);
    if (this.cache) this.cache.nTokens = ids.length;
    return slice(logits, logits.shape[0] - 1).data;
  }
}
