"""A chart with its words and its numbers."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lorgnette.display import NotebookDisplay
from lorgnette.types import Chart

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Figure(NotebookDisplay):
    """A chart with its text and numbers: `table` for reading, `data` with everything, for download."""

    name: str
    title: str
    caption: str
    chart: Chart = field(repr=False)
    table: "pd.DataFrame" = field(repr=False)
    data: "pd.DataFrame" = field(repr=False)
    wide: bool = False
