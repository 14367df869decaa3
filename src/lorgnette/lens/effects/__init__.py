"""The lens `effects`."""
