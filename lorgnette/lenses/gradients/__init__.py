"""The lens `gradients`."""
