"""The lens `coreference`."""
