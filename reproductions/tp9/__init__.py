"""AMAL TP 9 (Sorbonne 2024-25): self-attention on IMDB, its four exercises, and what depth, positions and CLS do."""

from reproductions.tp9.runs import reproduce, train_cells

__all__ = ["reproduce", "train_cells"]
