"""Models with heads removed: slicing the weights, and checkpoints that open again."""
