"""The lens `geometry`."""
