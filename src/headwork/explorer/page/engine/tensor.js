// A tensor is its numbers in one Float32Array, and the sizes of its axes: the last axis runs fastest. There is one
// example at a time, so there is no batch axis.

export function tensor(shape, data = new Float32Array(sizeOf(shape))) {
  if (data.length !== sizeOf(shape)) throw new Error(`data must have ${sizeOf(shape)} numbers for [${shape}], got ${data.length}`);
  return { shape, data };
}

export function sizeOf(shape) {
  return shape.reduce((product, size) => product * size, 1);
}

// The same numbers with other axes.
export function reshape(x, shape) {
  return tensor(shape, x.data);
}

export function mapNumbers(x, change) {
  return tensor(x.shape, x.data.map(change));
}

export function add(a, b) {
  return tensor(a.shape, a.data.map((number, i) => number + b.data[i]));
}

// Tensors one behind the other along their first axis.
export function join(...parts) {
  const joined = tensor([parts.reduce((n, part) => n + part.shape[0], 0), ...parts[0].shape.slice(1)]);
  let at = 0;
  for (const part of parts) {
    joined.data.set(part.data, at);
    at += part.data.length;
  }
  return joined;
}

// The places `from` to `to` of the first axis.
export function slice(x, from, to = x.shape[0]) {
  const width = sizeOf(x.shape.slice(1));
  return tensor([to - from, ...x.shape.slice(1)], x.data.slice(from * width, to * width));
}
