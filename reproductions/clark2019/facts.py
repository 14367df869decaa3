"""What the prose says of the data, from the cells."""

from collections.abc import Mapping
from typing import Any

from reproductions.clark2019.losses import LOSSES
from reproductions.frame.claims import Claim
from reproductions.frame.finished import Finished


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    surface = cells.of(kind="surface")
    about = surface[0].result.attrs if surface else {"segments": 0, "blocks": 0}
    return {
        "models": [*cells.labels("model", kind="surface"), "and for syntax " + ", ".join(_syntax(cells))],
        "segments": about["segments"],
        "blocks": about["blocks"],
        "printed": sum("digits" in cell.result.attrs for cell in cells),
        "classifier": LOSSES["gradients-classifier"].made,
    }


def _syntax(cells: Finished) -> list[str]:
    return [str(model) for model in cells.labels("model", kind="relations")]
