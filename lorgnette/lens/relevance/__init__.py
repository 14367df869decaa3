"""The lens `relevance`."""
