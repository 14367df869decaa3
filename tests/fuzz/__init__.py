"""Hostile input by the thousand, from a seed: `make fuzz`. See `fuzz.__main__`."""
