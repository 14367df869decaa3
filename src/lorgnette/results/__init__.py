"""Labelled numbers with their provenance, and how they are written and read."""

from lorgnette.results.result import Result, Results

__all__ = ["Result", "Results"]
