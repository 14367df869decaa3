"""The lens `alignment`."""
