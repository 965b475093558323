"""Every claim of the five documents: predicted, measured, judged and drawn."""
