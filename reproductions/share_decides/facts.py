"""What the prose needs to know."""

from collections.abc import Mapping
from typing import Any

from reproductions.frame.claims import Claim
from reproductions.frame.finished import Finished
from reproductions.share_decides.grid import PLACES, size_of
from reproductions.share_decides.readings import RANDOM, Readings, name


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    r = Readings(cells)
    few, _, many = r.shares
    quick = cells.settings.quick
    return {
        "size": size_of("imdb", quick),
        "translation": size_of("multi30k:fr-en", quick),
        "places": [name(place) for place in r.places],
        "planned": len(PLACES),
        "seeds": {name(place): r.seeds(place) for place in r.places},
        "ahead": {share: sum(lead > 0 for lead in r.leads("facilitation", "gradient", share)) for share in r.shares},
        "few": few,
        "many": many,
        "least": min((r.change(p, s, RANDOM, few) for p in r.places for s in r.stacks(p)), default=None),
    }
