"""The figure of the cones of parts of speech."""

from collections.abc import Iterator

import altair as alt
import numpy as np

from reproductions.fosse2023.tagging.claims import TITLES, taggers
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure

# Square roots: most cosines of different tags are small, and .05 must not look like .2.
_SCALE = alt.Scale(scheme="blueorange", type="pow", exponent=0.5, domain=[-1, 1], domainMid=0, reverse=True)


def figures(cells: Finished) -> Iterator[Figure]:
    for tagger in taggers(cells)[:1]:
        tags, rows = tagger.tags, []
        for when in ("before", "after"):
            cosines = tagger.array(f"{when}.cosine", ("direction", "class")).mean("seed").values
            for (i, j), cosine in np.ndenumerate(cosines):
                if not np.isnan(cosine):
                    where = {"when": f"{when} training", "direction": tags[i], "tag": tags[j]}
                    rows.append({**where, "cosine": float(cosine)})
        chart = alt.Chart(alt.Data(values=rows), width=alt.Step(17), height=alt.Step(17)).mark_rect()
        chart = chart.encode(
            x=alt.X("tag:N", title="tag of the word", sort=tags),
            y=alt.Y("direction:N", title="representative", sort=tags),
            color=alt.Color("cosine:Q", scale=_SCALE),
            column=alt.Column("when:N", sort=["before training", "after training"], title=None),
        )
        caption = (
            "Mean cosine of the test words of each tag with representatives of each tag, "
            f"{TITLES[tagger.start]}; mean over seeds."
        )
        yield Figure("tags", chart, caption)
