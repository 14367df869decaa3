"""The lens `synthetic`."""
