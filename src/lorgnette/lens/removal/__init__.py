"""The lens `removal`."""
