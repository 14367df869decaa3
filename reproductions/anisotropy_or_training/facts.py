"""What the prose needs to know."""

from collections.abc import Mapping
from typing import Any

from reproductions.anisotropy_or_training.runs import LESS, Runs
from reproductions.frame.claims import Claim
from reproductions.frame.finished import Finished


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    runs = Runs(cells)
    return {"less": LESS, "anisotropic": {corpus: runs.anisotropic(corpus, "train") for corpus in runs.corpora}}
