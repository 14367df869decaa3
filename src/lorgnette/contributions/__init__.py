"""What each token contributes to a head and to a layer: norms of transformed vectors, mixing, rollout."""
