"""What a model is trained for: its loss, its figures, its answers."""
