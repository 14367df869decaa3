"""One record per model family: all that depends on the family, in one place.

record → what a record can say            encoders, decoders, translators, own → the records
table  → the record of a model            reading → from a record to a loaded model's anatomy
"""

from lorgnette.models.families.reading import anatomy_of, whole_anatomy
from lorgnette.models.families.record import Cut, Family
from lorgnette.models.families.table import (
    FAMILIES,
    PRUNED,
    drift,
    family_of,
    head_prunable_types,
    longest_text,
    model_types,
    prunable_types,
    record_of,
)

__all__ = [
    "FAMILIES",
    "PRUNED",
    "Cut",
    "Family",
    "anatomy_of",
    "drift",
    "family_of",
    "head_prunable_types",
    "longest_text",
    "model_types",
    "prunable_types",
    "record_of",
    "whole_anatomy",
]
