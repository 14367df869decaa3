"""Many classes: how many directions a model uses, whether they stay orthogonal, when accuracy falls."""
