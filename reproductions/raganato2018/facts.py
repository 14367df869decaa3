"""What the prose about Raganato & Tiedemann 2018 needs to know."""

from collections.abc import Mapping
from typing import Any

from reproductions.frame.claims import FAILS, HOLDS, OPEN, Claim
from reproductions.frame.finished import Finished
from reproductions.raganato2018.claims import TASK_NAMES
from reproductions.raganato2018.readings import layers_of, probe, tasks

READ = {
    "trees-en-average-like-previous": FAILS,
    "trees-en-best-like-next": FAILS,
    "trees-en-early-layers": FAILS,
    "trees-en-over-shuffled": HOLDS,
    "trees-fr-best-like-next": FAILS,
    **{
        f"pattern-{model}-{pattern}": HOLDS
        for model in ("en", "fr")
        for pattern in ("self", "previous", "next", "last")
    },
    **{f"small-{pattern}": OPEN for pattern in ("self", "previous", "next", "last")},
    **{f"probe-{task}-over-shuffled": HOLDS for task in ("upos", "chunk", "etype", "infstat")},
    "probe-entity-over-shuffled": OPEN,
}
READ_CONTEXTS = {
    f"{name}-{model}": verdict
    for name, verdict in (
        ("singleton-linear", HOLDS),
        ("singleton-differs", HOLDS),
        ("sentence-like", FAILS),
        ("order", HOLDS),
    )
    for model in ("minilm", "e5-small", "opus-mt-en-fr")
} | {"analogy-minilm": OPEN, "analogy-e5-small": OPEN}
"""The verdicts that the page's conclusions were written for."""


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    data = {task: probe(cells, task) for task in tasks(cells)}

    def read(expected: Mapping[str, str]) -> bool:
        return all(name in claims and claims[name].verdict == verdict for name, verdict in expected.items())

    judged = {task: claims[f"probe-{task}-layers"].verdict for task in data if f"probe-{task}-layers" in claims}
    compared = [cell.result for cell in cells.of(kind="compared")]
    return {
        "layers": {
            "best": [TASK_NAMES[task].partition(" (")[0] for task, verdict in judged.items() if verdict == HOLDS],
            "worse": [TASK_NAMES[task].partition(" (")[0] for task, verdict in judged.items() if verdict == FAILS],
        },
        "compared_words": max((int(one["words"].sum()) for one in compared), default=0),
        "as_read": read(READ),
        "contexts_as_read": read(READ_CONTEXTS),
        "probe_words": max((one.attrs["train_items"] for one in data.values()), default=0),
        "unselective": [
            TASK_NAMES[task] for task, one in data.items() if (one["selectivity"].sel(layer=layers_of(one)) < 0).all()
        ],
    }
