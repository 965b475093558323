"""One file for each claim; the file's name is the claim's, and nothing else lists it."""
