"""Gates on heads (hard concrete, L0), fitted and read."""
