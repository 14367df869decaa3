"""What does BERT look at? (Clark et al. 2019), on other encoders: the surface (§3, §6), and syntax (§4, §5).

cell      → one model under one condition, measured
gradients → §3.3, on a translation's and a classifier's loss
tables, figures, claims, words → what is read off
syntax    → the cells of the syntactic part; syntax_cell measures one, syntax_… read off; stanford maps the relations
"""

from reproductions.frame.record import Reproduction, Settings

NAME = "clark2019"
SENTENCES, QUICK_SENTENCES = 200, 8


def reproduce(settings: Settings) -> Reproduction:
    """Where the weight goes, entropy, the map of heads, relations and trees, for every model, with its controls."""
    from reproductions.clark2019 import (
        gradients,
        syntax,
        syntax_claims,
        syntax_figures,
        syntax_tables,
        syntax_words,
        words,
    )
    from reproductions.clark2019.claims import claims
    from reproductions.clark2019.figures import figures
    from reproductions.clark2019.tables import tables
    from reproductions.frame.cells import Cell
    from reproductions.frame.conditions import RANDOM, SHUFFLED, TRAINED, finished, run
    from reproductions.frame.readings import about_the_claims, provenance
    from reproductions.frame.record import origin, published

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
    parsed = syntax.run(settings, NAME)
    printed = published(NAME)
    more = {which: {k: v for k, v in cell.items() if k not in ("gradient", "error")} for which, cell in slopes.items()}
    claimed = [
        *claims(found, printed["numbers"]),
        *words.gradient_claim(slopes, printed["numbers"]),
        *syntax_claims.claims(parsed, printed["numbers"]),
    ]
    return Reproduction(
        name=NAME,
        title="What do heads look at? The surface of attention, and syntax",
        reference=printed["reference"],
        question=words.QUESTION,
        setup=[*words.setup(found), *syntax_words.setup(parsed)],
        summary=[*words.summary(found, slopes), *syntax_words.summary(parsed), about_the_claims(claimed)],
        tables=[
            *tables(found, printed["numbers"]),
            *(gradients.table(*slope) for slope in slopes.items()),
            *syntax_tables.tables(parsed, printed["numbers"]),
        ],
        figures=[*figures(found), *syntax_figures.figures(parsed, printed["numbers"])],
        claims=claimed,
        provenance=origin(settings, NAME, conditions=provenance(found), syntax=syntax.sources(parsed), **more),
    )
