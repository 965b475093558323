"""The loop, what it keeps, and what it shows."""
