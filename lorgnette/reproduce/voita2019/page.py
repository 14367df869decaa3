"""The parts of Voita et al. 2019 on one page."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lorgnette.reproduce.record import Reproduction, origin, published
from lorgnette.reproduce.voita2019 import Part

if TYPE_CHECKING:
    from lorgnette.reproduce.record import Settings

_QUESTION = "Which heads of a translation model do the work, what do they do, and how few are needed?"


def page_of(settings: "Settings", parts: Mapping[str, Part], missing: Mapping[str, tuple[int, int]]) -> Reproduction:
    """All parts one after the other; what was not run is said first."""
    some = list(parts.values())
    gaps = [f"{left} of the {count} runs of *{name}*" for name, (left, count) in missing.items()]
    said = [f"**Not all of it was run**: {', '.join(gaps)} are missing; the page is without them."] if gaps else []
    return Reproduction(
        name="voita2019",
        title="Voita et al. 2019: specialised heads do the heavy lifting, the rest can be pruned",
        reference=published("voita2019")["reference"],
        question=_QUESTION,
        setup=[paragraph for part in some for paragraph in part.setup],
        summary=[*said, *(paragraph for part in some for paragraph in part.summary)],
        claims=[claim for part in some for claim in part.claims],
        tables=[table for part in some for table in part.tables],
        figures=[figure for part in some for figure in part.figures],
        provenance=origin(settings, "voita2019", **{name: dict(part.provenance) for name, part in parts.items()}),
    )
