"""Which parts of a prompt an answer used: by attention, by norm, by relevance, and by what happens without them."""
