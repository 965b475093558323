"""The explorer: a model in the browser, recomputing as you type, draw and drag."""
