"""The lens `agreement`."""
