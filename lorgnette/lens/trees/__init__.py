"""The lens `trees`."""
