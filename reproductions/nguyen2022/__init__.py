"""Nguyen, Gravier and Sébillot 2022: an entropy penalty on attention, and how plausible it becomes."""

from reproductions.nguyen2022.runs import reproduce, train_cells

__all__ = ["reproduce", "train_cells"]
