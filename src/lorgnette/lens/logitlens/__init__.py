"""The lens `logitlens`."""
