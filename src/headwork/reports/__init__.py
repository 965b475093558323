"""A run as a page that a person wants to look at."""
