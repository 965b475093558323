// The bytes of an answer as parts: a header and arrays (headwork/explorer/answers.py says how they are written).

const ARRAYS = { float32: Float32Array, uint8: Uint8Array, int32: Int32Array };

// Reads whole frames off a growing buffer.
export class Frames {
  constructor() {
    this.bytes = new Uint8Array(0);
  }

  // Add bytes; the parts that are now complete.
  push(more) {
    const joined = new Uint8Array(this.bytes.length + more.length);
    joined.set(this.bytes);
    joined.set(more, this.bytes.length);
    this.bytes = joined;
    const parts = [];
    for (let part = this.take(); part; part = this.take()) parts.push(part);
    return parts;
  }

  take() {
    if (this.bytes.length < 4) return null;
    const view = new DataView(this.bytes.buffer, this.bytes.byteOffset);
    const length = view.getUint32(0, true);
    if (this.bytes.length < 4 + length) return null;
    const header = JSON.parse(new TextDecoder().decode(this.bytes.subarray(4, 4 + length)));
    let end = 4 + length;
    const places = header.arrays.map(({ dtype, shape }) => {
      const start = end;
      const size = shape.reduce((product, n) => product * n, 1) * ARRAYS[dtype].BYTES_PER_ELEMENT;
      end += size + ((8 - (size % 8)) % 8);
      return [start, size];
    });
    if (this.bytes.length < end) return null;
    const arrays = {};
    header.arrays.forEach(({ name, dtype, shape }, i) => {
      const [start, size] = places[i];
      const copy = this.bytes.slice(start, start + size); // its own buffer, so that it is aligned
      arrays[name] = { data: new ARRAYS[dtype](copy.buffer), shape };
    });
    delete header.arrays;
    this.bytes = this.bytes.subarray(end);
    return { header, arrays };
  }
}
