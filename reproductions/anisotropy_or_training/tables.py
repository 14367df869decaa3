"""Every setting: how much was learnt, how similar keys and values are, and how even the weights."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from reproductions.anisotropy_or_training.claims import OF
from reproductions.anisotropy_or_training.grid import DEEP
from reproductions.anisotropy_or_training.runs import HIGH, Runs
from reproductions.fosse2023.grid import NAMES
from reproductions.frame.finished import Finished
from reproductions.frame.page import Table, published
from reproductions.frame.statistics import mean_of


def tables(cells: Finished) -> Iterator[Table]:
    runs, printed = Runs(cells), published("anisotropy_or_training")
    for corpus in runs.corpora:
        yield _settings(runs, printed, corpus)
    for corpus in runs.corpora:
        for of, name in OF.items():
            yield _layers(runs, printed, corpus, of, name)


def _settings(runs: Runs, printed: Any, corpus: str) -> Table:
    rows = []
    for one in runs.settings(corpus):
        sims = runs.sim(corpus, one)
        rows.append(
            {
                "vectors": one.vectors,
                "step size": f"{one.rate:g}",
                "warm-up": one.warmup,
                "L": one.layers,
                "training accuracy": str(mean_of(runs.accuracy(corpus, one))),
                "test accuracy": str(mean_of(runs.accuracy(corpus, one, "test"))),
                "SIM(V), last": str(mean_of(sims)),
                "SIM(K), last": str(mean_of(runs.sim(corpus, one, "key"))),
                "SIM(V), untrained": float(runs.sim(corpus, one, when="untrained").mean()),
                "H, first": float(runs.of(corpus, one, "trained.entropy", 1).mean()),
                "H, untrained": float(runs.of(corpus, one, "untrained.entropy", 1).mean()),
                "best epoch": float(runs.of(corpus, one, "best").mean()),
                f"SIM(V) > {HIGH}": f"{int((sims > HIGH).sum())} of {len(sims)}",
                "at chance": int((~runs.learnt(corpus, one).astype(bool)).sum()),
            }
        )
    note = (
        "Mean ± sd over seeds. Accuracy on the training texts is that of the weights that were kept. SIM: last layer; "
        f"H: row of `<cls>`, first layer. Published, L = {DEEP}: SIM(V) {printed['value'][corpus][-1]}, SIM(K) "
        f"{printed['key'][corpus][-1]}, test accuracy {printed['accuracy'][corpus]}."
    )
    return Table(f"settings-{corpus}", f"{NAMES[corpus]}: every setting", pd.DataFrame(rows), note)


def _layers(runs: Runs, printed: Any, corpus: str, of: str, name: str) -> Table:
    rows: list[dict[str, Any]] = []
    for one in runs.settings(corpus, deep=True):
        row: dict[str, Any] = {"vectors": one.vectors, "step size": f"{one.rate:g}", "warm-up": one.warmup}
        rows.append(row | {str(n): float(runs.sim(corpus, one, of, n).mean()) for n in range(1, one.layers + 1)})
    rows.append({"vectors": "published", **{str(n): value for n, value in enumerate(printed[of][corpus], 1)}})
    note = f"Means over seeds. Published: {printed[of]['source']}, one run."
    return Table(f"layers-{corpus}-{name}", f"{NAMES[corpus]}: SIM of the {name} by layer", pd.DataFrame(rows), note)
