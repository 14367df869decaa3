"""The lens `context`."""
