// A part of a model, by the name that PyTorch has for it ("layers.0.attention"): where its weights are found, and where
// what it returns is seen, and replaced if an edit is there. Names are those of hw.record and hw.patch.

export class Part {
  // A run is { weights, edits, resume, points }; see model.js.
  constructor(run, name = "") {
    this.run = run;
    this.name = name;
  }

  inside(name) {
    return new Part(this.run, this.name ? `${this.name}.${name}` : name);
  }

  weight(name) {
    const found = this.run.weights[this.inside(name).name];
    if (!found) throw new Error(`the model has no weight ${this.inside(name).name}`);
    return found;
  }

  // Also whether there is a part of that name with weights inside.
  has(name) {
    const full = this.inside(name).name;
    return full in this.run.weights || Object.keys(this.run.weights).some((weight) => weight.startsWith(`${full}.`));
  }

  // Pass the point: returns the value, or what an edit makes of it.
  see(value) {
    const name = this.name || "output";
    const edit = this.run.edits[name];
    const seen = edit ? edit(value) : value;
    this.run.points[name] = seen;
    return seen;
  }
}
