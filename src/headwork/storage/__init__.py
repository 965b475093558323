"""Models in folders that are whole or not there at all, and checked when they are read."""
