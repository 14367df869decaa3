"""The table of the cones of parts of speech."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from reproductions.fosse2023.tagging.claims import FRENCH, TITLES, Tagger, french, taggers
from reproductions.frame.finished import Finished
from reproductions.frame.page import Table

_NOTE = "Cosines: means over words with representatives of the tag. A tag without test words has none."


def tables(cells: Finished) -> Iterator[Table]:
    for tagger in taggers(cells):
        title = f"Cones of parts of speech, {TITLES[tagger.start]}"
        yield Table(f"tags-{tagger.start}", title, pd.DataFrame(list(_rows(tagger))), _NOTE)
    for tagger in french(cells):
        yield Table(
            "tags-french", f"Cones of French parts of speech, {FRENCH}", pd.DataFrame(list(_rows(tagger))), _NOTE
        )


def _rows(tagger: Tagger) -> Iterator[dict[str, Any]]:
    cosine = tagger.array("after.cosine", ("direction", "class")).mean("seed").values
    paths = ("after.accuracy", "before.auroc", "after.auroc", "after.own_wrong")
    values = {path: tagger.array(path, "tag").mean("seed").values for path in paths}
    for c, tag in enumerate(tagger.tags):
        others = np.delete(cosine[c], c)
        known = not np.isnan(others).all()
        nearest = int(np.nanargmax(np.where(np.arange(len(cosine)) == c, np.nan, cosine[c]))) if known else None
        yield {
            "tag": tag,
            "test words": tagger.words[c],
            "accuracy": values["after.accuracy"][c],
            "AUROC before": values["before.auroc"][c],
            "AUROC after": values["after.auroc"][c],
            "own tag": cosine[c, c],
            "nearest other": "–" if nearest is None else tagger.tags[nearest],
            "its cosine": np.nan if nearest is None else cosine[c, nearest],
            "other tags": float(np.nanmean(others)) if known else np.nan,
            "own tag, tagged wrong": values["after.own_wrong"][c],
        }
