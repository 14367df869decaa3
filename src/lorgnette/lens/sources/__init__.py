"""The lens `sources`."""
