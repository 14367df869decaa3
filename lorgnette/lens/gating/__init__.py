"""The lens `gating`."""
