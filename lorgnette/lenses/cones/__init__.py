"""The lens `cones`."""
