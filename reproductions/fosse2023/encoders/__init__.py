"""Cones of classes on a fine-tuned encoder, and the anisotropy of its states before and after."""
