"""Every arm, and what each change does, by seed."""

from collections.abc import Iterator

import pandas as pd

from reproductions.fosse2023.grid import NAMES
from reproductions.frame import markdown
from reproductions.frame.finished import Finished
from reproductions.frame.page import Table
from reproductions.frame.statistics import mean_of
from reproductions.stiff_or_sharp.runs import CONTRASTS, MEASURES, Runs

_MORE = {
    "value_without_bias": "SIM without the bias",
    "key": "SIM of the keys",
    "auroc": "AUROC",
    "comprehensiveness": "comprehensiveness",
    "flipped.permuted": "… that shuffled weights change",
    "accuracy.train": "training accuracy",
}


_GAUGE = {
    "value": "SIM of the values",
    "value_centred": "… centred",
    "key": "SIM of the keys",
    "key_centred": "… centred (keys)",
    "accuracy.test": "test accuracy",
}


def tables(cells: Finished) -> Iterator[Table]:
    runs = Runs(cells)
    yield from (_arms(runs, corpus) for corpus in runs.corpora)
    yield _effects(runs)
    yield _gauge(runs.gauge)


def _gauge(runs: Runs) -> Table:
    rows = [
        {"corpus": NAMES[corpus], "arm": arm}
        | {title: str(mean_of(runs.of(corpus, arm, path))) for path, title in _GAUGE.items()}
        for corpus in runs.corpora
        for arm in runs.arms
    ]
    note = (
        "Mean ± sd over seeds. Centred: less the mean over all tokens of all test texts. Trained once more, on a CPU."
    )
    return Table("gauge", "SIM as it is and without the constant that is free", pd.DataFrame(rows), note)


def _arms(runs: Runs, corpus: str) -> Table:
    rows = []
    for arm in runs.arms:
        columns = {title: str(mean_of(runs.of(corpus, arm, path))) for path, title in {**MEASURES, **_MORE}.items()}
        rows.append({"arm": arm, **columns, "at chance": runs.at_chance(corpus, arm)})
    note = (
        "Mean ± sd over seeds. Plain: no penalty; sharp: an entropy penalty; held: SIM of the values is held where it "
        "is without a penalty; stiff: it is held 0.25 higher. Training accuracy: last epoch, while training."
    )
    return Table(f"arms-{corpus}", f"{NAMES[corpus]}: every arm", pd.DataFrame(rows), note)


def _effects(runs: Runs) -> Table:
    rows = []
    for corpus in runs.corpora:
        for name, arms in CONTRASTS.items():
            row: dict[str, str | int] = {"corpus": NAMES[corpus], "change": name, "arms": f"{arms[0]} − {arms[1]}"}
            for path, title in MEASURES.items():
                row[title] = markdown.estimate(mean_of(runs.effect(corpus, arms, path)[0]))
            rows.append(row)
    note = (
        "Differences by seed, mean [95 % interval], all runs. Flips: share of predictions that uniform weights change."
    )
    return Table("effects", "What each change does", pd.DataFrame(rows), note)
