"""Text out of a model: one token at a time, by chance or by search."""
