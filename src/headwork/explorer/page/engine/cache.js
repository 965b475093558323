import { join } from "./tensor.js";

// Keys and values of the tokens that were read, so that each new token is the only one to be computed.
export class Cache {
  constructor() {
    this.kept = {};
    this.memory = null; // of an encoder-decoder
    this.nTokens = 0;
  }

  // The keys and values of an attention, the new ones behind those of the past; those of a memory are made once.
  keep(name, isMemory, project) {
    const past = this.kept[name];
    if (past && isMemory) return past;
    const made = project();
    this.kept[name] = past ? made.map((tensor, i) => join(past[i], tensor)) : made;
    return this.kept[name];
  }

  nBytes() {
    return Object.values(this.kept).flat().reduce((total, tensor) => total + tensor.data.byteLength, 0);
  }
}
