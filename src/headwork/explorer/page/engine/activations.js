// What stands between the two linear maps of a feed-forward network, for one number.

export const activations = {
  relu: (x) => Math.max(x, 0),
  relu2: (x) => Math.max(x, 0) ** 2,
  gelu: (x) => (x / 2) * (1 + erf(x / Math.SQRT2)),
  gelu_tanh: (x) => (x / 2) * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  silu: (x) => x / (1 + Math.exp(-x)),
  tanh: Math.tanh,
};

// The error function, which JavaScript lacks, to 1.5e-7. Abramowitz and Stegun, "Handbook", 1964, formula 7.1.26.
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const polynomial = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  return Math.sign(x) * (1 - polynomial * Math.exp(-x * x));
}
