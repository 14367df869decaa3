"""Sinks: the tokens that take a head's weight, what they send, and what happens without them."""
