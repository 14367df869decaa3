"""The parts of Fosse et al. 2023 on one page."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lorgnette.reproduce.fosse2023 import Part
from lorgnette.reproduce.record import Reproduction, origin, published

if TYPE_CHECKING:
    from lorgnette.reproduce.record import Settings

_QUESTION = (
    "Are the vectors of self-attention anisotropic, how does that come about, and does it say more of the class than "
    "the weights of attention do?"
)


def page_of(settings: "Settings", parts: Mapping[str, Part], missing: Mapping[str, tuple[int, int]]) -> Reproduction:
    """All parts one after the other; what was not run is said first."""
    some = list(parts.values())
    gaps = [f"{left} of the {count} runs of *{name}*" for name, (left, count) in missing.items()]
    said = (
        [f"**Not all of it was run**: {', '.join(gaps)} are missing; tables and claims are without them."]
        if gaps
        else []
    )
    return Reproduction(
        name="fosse2023",
        title="Fosse et al. 2023: when geometry replaces attention",
        reference=published("fosse2023")["reference"],
        question=_QUESTION,
        setup=[paragraph for part in some for paragraph in part.setup],
        summary=[*said, *(paragraph for part in some for paragraph in part.summary)],
        claims=[claim for part in some for claim in part.claims],
        tables=[table for part in some for table in part.tables],
        figures=[figure for part in some for figure in part.figures],
        provenance=origin(settings, "fosse2023", **_provenance(parts)),
    )


def _provenance(parts: Mapping[str, Part]) -> dict[str, Any]:
    return {name: dict(part.provenance) for name, part in parts.items()}
