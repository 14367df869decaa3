"""The lens `norms`."""
