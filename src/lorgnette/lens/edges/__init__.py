"""The lens `edges`."""
