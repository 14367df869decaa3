"""The lens `probes`."""
