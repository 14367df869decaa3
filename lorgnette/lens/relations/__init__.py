"""The lens `relations`."""
