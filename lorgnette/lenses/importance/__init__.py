"""The lens `importance`."""
