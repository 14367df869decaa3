"""The lens `patching`."""
