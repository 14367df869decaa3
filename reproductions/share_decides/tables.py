"""What is lost by each signal and share, and what the models can do with all heads."""

from typing import Any

import pandas as pd

from reproductions.frame.finished import Finished
from reproductions.frame.page import Table
from reproductions.share_decides.grid import SIGNALS
from reproductions.share_decides.readings import RANDOM, Readings, name


def tables(cells: Finished) -> list[Table]:
    r = Readings(cells)
    lost, models = [], []
    for place in r.places:
        row: dict[str, Any] = {"model": name(place), "seeds": r.seeds(place), "loss": r.intact(place, "loss")}
        models.append(row | {"accuracy": r.intact(place, "accuracy")})
        for stack in r.stacks(place):
            for signal in (*SIGNALS, RANDOM):
                at = {"model": name(place), "stack": stack, "removed by": signal.replace("_", " ")}
                lost.append(at | {f"{share:.0%} gone": r.change(place, stack, signal, share) for share in r.shares})
    return [
        Table("lost", "Change of the loss", pd.DataFrame(lost), "Nats of a text, or of a token of a translation."),
        Table("models", "The models with all heads", pd.DataFrame(models), "On the texts on which heads are removed."),
    ]
