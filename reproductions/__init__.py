"""Published findings, measured again: a package for each study, and `frame`, which they share.

`lorgnette reproduce NAME` runs one from a checkout; `reproductions/README.md` lists what came out.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from lorgnette.errors import UserError, near

if TYPE_CHECKING:
    from reproductions.frame.study import Study

STUDIES = (
    "kobayashi2020",
    "clark2019",
    "raganato2018",
    "tp9",
    "nguyen2022",
    "fosse2023",
    "voita2019",
    "which_signal",
    "cancellation_by_layer",
    "anisotropy_or_training",
    "stiff_or_sharp",
    "heavy_lifting",
    "norms_align",
    "sink_as_bias",
    "free_constant",
)
WAITING = ("share_decides", "choice_or_adaptation")
"""Written, with their predictions, but not run: they have neither cells nor a page."""


def find(name: str) -> "Study":
    """The study of this name."""
    every = (*STUDIES, *WAITING)
    if name not in every:
        raise UserError(f"There is no reproduction {name!r}.{near(name, every)} There are: {', '.join(every)}.")
    study: Study = import_module(f"reproductions.{name}").STUDY
    return study
