"""What the prose needs to know."""

from collections.abc import Mapping
from typing import Any

from reproductions.anisotropy_or_training.runs import LESS, Runs
from reproductions.frame.claims import Claim
from reproductions.frame.finished import Finished


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    runs = Runs(cells)
    counts = {corpus: runs.anisotropic(corpus, "train").values() for corpus in runs.corpora}
    return {
        "less": LESS,
        "anisotropic": {
            corpus: [sum(pair) for pair in zip(*one, strict=True)] or [0, 0] for corpus, one in counts.items()
        },
    }
