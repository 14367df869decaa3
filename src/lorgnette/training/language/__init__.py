"""Pruning language models: plain texts, and how well a model predicts them."""
