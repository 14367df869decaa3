"""Encoder representations of translation models (Raganato & Tiedemann 2018): trees, patterns, probes.

grid      → which conditions there are
cell      → one of them, measured
semantics → what stands in for semantic tags
reading   → numbers with intervals; tables, figures, claims, words → what is read off
"""

from reproductions.frame.record import Reproduction, Settings

NAME = "raganato2018"


def reproduce(settings: Settings) -> Reproduction:
    """Trees and patterns of every head, and probes on every layer, with random weights and shuffled words beside."""
    from lorgnette.errors import UserError
    from reproductions.frame.conditions import finished
    from reproductions.frame.readings import about_the_claims
    from reproductions.frame.record import origin, published
    from reproductions.raganato2018 import words
    from reproductions.raganato2018.claims import claims
    from reproductions.raganato2018.figures import figures
    from reproductions.raganato2018.grid import TREEBANKS, cells
    from reproductions.raganato2018.reading import outcome
    from reproductions.raganato2018.tables import tables

    asked = cells(settings)
    if not asked:
        raise UserError(f"None of {', '.join(TREEBANKS)} is here. Give --models, the folder that holds them.")
    done = finished(settings, asked, NAME)
    found = outcome(done, settings.out.parent / "voita2019" / "cells")
    if not (found.trees or found.patterns or found.probes):
        raise UserError("Nothing has been measured yet: run it without --partial.")
    printed = published(NAME)
    claimed = claims(found, printed["numbers"])
    kept = ("by_block", "whole", "recall", "relations")
    sources = {key: {k: v for k, v in cell.items() if k not in kept} for key, cell in done.items()}
    return Reproduction(
        name=NAME,
        title="What do encoders of translation models know? Trees, patterns, probes",
        reference=printed["reference"],
        question=words.QUESTION,
        setup=words.setup(found),
        summary=[*words.summary(found), about_the_claims(claimed)],
        tables=tables(found, printed["numbers"]),
        figures=figures(found),
        claims=claimed,
        provenance=origin(settings, NAME, conditions=sources),
    )
