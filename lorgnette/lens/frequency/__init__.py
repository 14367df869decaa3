"""The lens `frequency`."""
