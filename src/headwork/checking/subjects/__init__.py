"""One file for each kind of subject: its mistakes, its conventions, how it is read."""
