"""What does BERT look at? (Clark et al. 2019), the surface part: §3 and §6, on other encoders.

cell      → one model under one condition, measured
gradients → §3.3, on a translation's and a classifier's loss
tables, figures, claims, words → what is read off
"""

from lorgnette.reproduce.record import Reproduction, Settings

NAME = "clark2019"
SENTENCES, QUICK_SENTENCES = 200, 8


def reproduce(settings: Settings) -> Reproduction:
    """Where the weight goes, entropy, the map of heads, for every model that is there, with its controls."""
    from lorgnette.reproduce.cells import Cell
    from lorgnette.reproduce.clark2019 import gradients, words
    from lorgnette.reproduce.clark2019.claims import claims
    from lorgnette.reproduce.clark2019.figures import figures
    from lorgnette.reproduce.clark2019.tables import tables
    from lorgnette.reproduce.conditions import RANDOM, SHUFFLED, TRAINED, finished, run
    from lorgnette.reproduce.readings import about_the_claims, provenance
    from lorgnette.reproduce.record import origin, published

    found = run(settings, f"{__name__}.cell:measure", (TRAINED, RANDOM, SHUFFLED), NAME)
    texts = QUICK_SENTENCES if settings.quick else SENTENCES
    asked = {
        which: Cell(
            f"{__name__}.gradients:measure", {"texts": texts} | ({} if which == "gradients" else {"which": which})
        )
        for which in gradients.LOSSES
        if gradients.there(which, settings.models)
    }
    slopes = finished(settings, asked, NAME) if asked else {}
    printed = published(NAME)
    more = {which: {k: v for k, v in cell.items() if k not in ("gradient", "error")} for which, cell in slopes.items()}
    claimed = [*claims(found, printed["numbers"]), *words.gradient_claim(slopes, printed["numbers"])]
    return Reproduction(
        name=NAME,
        title="What do heads look at? The surface of attention",
        reference=printed["reference"],
        question=words.QUESTION,
        setup=words.setup(found),
        summary=[*words.summary(found, slopes), about_the_claims(claimed)],
        tables=[*tables(found, printed["numbers"]), *(gradients.table(*slope) for slope in slopes.items())],
        figures=figures(found),
        claims=claimed,
        provenance=origin(settings, NAME, conditions=provenance(found), **more),
    )
