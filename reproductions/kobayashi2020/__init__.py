"""Attention is not only a weight (Kobayashi et al. 2020), with residual and LayerNorm (2021), on other encoders.

cell      → one model under one condition, measured
tables, figures, claims → what is read off
"""

from reproductions.frame.record import Reproduction, Settings

NAME = "kobayashi2020"


def reproduce(settings: Settings) -> Reproduction:
    """Norms beside weights, mixing ratios and frequency, for every model that is there, with its controls."""
    from reproductions.frame.conditions import RANDOM, SHUFFLED, SINGLE, TRAINED, WIKITEXT, run
    from reproductions.frame.readings import about_the_claims, provenance
    from reproductions.frame.record import origin, published
    from reproductions.kobayashi2020 import words
    from reproductions.kobayashi2020.claims import claims
    from reproductions.kobayashi2020.figures import figures
    from reproductions.kobayashi2020.tables import tables

    conditions = (TRAINED, RANDOM, SHUFFLED) if settings.quick else (TRAINED, RANDOM, SHUFFLED, SINGLE, WIKITEXT)
    found = run(settings, "reproductions.kobayashi2020.cell:measure", conditions, NAME)
    printed = published(NAME)
    claimed = claims(found, printed["numbers"])
    return Reproduction(
        name=NAME,
        title="Attention is not only a weight: norms of what heads read",
        reference=printed["reference"],
        question=words.QUESTION,
        setup=words.setup(found),
        summary=[*words.summary(found), about_the_claims(claimed)],
        tables=tables(found, printed["numbers"]),
        figures=figures(found, printed["numbers"]["spearman"]["value"]),
        claims=claimed,
        provenance=origin(settings, NAME, conditions=provenance(found)),
    )
