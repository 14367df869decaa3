"""The lens `convexity`."""
