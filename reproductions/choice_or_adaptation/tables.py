"""BLEU of every set of heads after each length of adaptation."""

from statistics import mean
from typing import Any

import pandas as pd

from reproductions.choice_or_adaptation.grid import CHOICES
from reproductions.choice_or_adaptation.readings import RANDOM, Readings
from reproductions.frame.finished import Finished
from reproductions.frame.page import Table

SETS = (
    *(("pruned", choice) for choice in (*CHOICES, RANDOM)),
    ("scratch", "gates"),
    ("scratch", "random0"),
    ("whole", None),
)


def tables(cells: Finished) -> list[Table]:
    r, rows = Readings(cells), []
    for kind, choice in SETS:
        bleu = {steps: r.bleu(kind, choice, steps) for steps in r.adapting}
        if all(bleu.values()):
            row: dict[str, Any] = {"model": kind, "heads": said(choice), "seeds": len(bleu[r.adapting[0]])}
            rows.append(row | {f"{steps:,} steps": mean(one.values()) for steps, one in bleu.items()})
    return [Table("bleu", "BLEU by length of adaptation", pd.DataFrame(rows), "Mean over seeds.")] if rows else []


def said(choice: str | None) -> str:
    return "all" if choice is None else choice.replace("_", " ").replace("random0", "a random set")
