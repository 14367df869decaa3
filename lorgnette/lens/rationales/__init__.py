"""The lens `rationales`."""
