"""Pure-attention models trained from word vectors: anisotropy by depth and by λ, explanations, replaced weights."""
