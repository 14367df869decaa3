"""The lens `weights`."""
