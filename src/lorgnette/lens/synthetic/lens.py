"""What each head does with texts made to show it: repeated random tokens, and a needle in a haystack."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Annotated, ClassVar

import numpy as np
import torch
import xarray as xr

from lorgnette import axes
from lorgnette.constraints import Interval, NotEmpty, Seed
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.lens.signals import Signal, variable
from lorgnette.lens.synthetic import haystack
from lorgnette.lens.synthetic.repeats import REPEATED, repeat_scores, sequences
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate, false_discovery
from lorgnette.subject import Subject

TESTS = (*REPEATED, "retrieval")
_DESCRIPTIONS = {
    "score": "induction: weight on the token after the previous occurrence; duplicate: on the previous occurrence; "
    "previous: on the token before; retrieval: share of a needle's tokens that the head reads as they are said",
    "control": "the same at the same places where nothing repeats; previous: an even share of what a token sees; "
    "retrieval: other tokens of the needle",
    "excess": "score minus control, mean over sequences (retrieval: trials)",
    "excess_q": "p of the excess (one-sided t test over sequences or trials), corrected over heads",
    "recall": "share of the needle's tokens that the model generates, mean over trials",
}


class Synthetic(Lens):
    """Induction, duplicate-token and previous-token scores on repeated random tokens, and retrieval scores.

        induction   mean over i of α_ij, x_{j−1} = x_i           (Olsson et al. 2022)
        duplicate   mean over i of α_ij, x_j = x_i, j < i        (Wang et al. 2022)
        previous    mean over i of α_i,i−1
        retrieval   share of a needle's tokens at which the head's largest weight is as they are said (Wu et al. 2024)

    Each has its control: the same places in sequences in which nothing repeats. The lens makes its own texts, whatever
    the corpus: `sequences` of `length` random tokens, twice; for a language model, `needles` haystacks of each of
    `lengths` tokens, with the needle at each of `depths` (percent). Trials in which the model says less than half of
    the needle do not count for retrieval; `recall` says how much it said.

    What it does not tell you: that the head does this on real text (see `roles`), or that the model needs it (see
    `importance`). Random tokens are like nothing that it was trained on.
    """

    name: ClassVar[str] = "synthetic"
    reads = frozenset({"tokens", "cpu"})
    summary: ClassVar[str] = "induction, duplicate-token, previous-token and retrieval scores on synthetic texts"
    signals: ClassVar[Mapping[str, Signal]] = {
        name: Signal(f"{name} score on synthetic texts, minus its control", variable("excess", {axes.TEST: name}))
        for name in TESTS
    }

    def __init__(
        self,
        sequences: Annotated[int, Interval(2)] = 32,
        length: Annotated[int, Interval(4)] = 25,
        needles: Annotated[int, Interval(0)] = 2,
        lengths: Sequence[Annotated[int, Interval(1)]] = (100, 200, 400),
        depths: Annotated[Sequence[Annotated[int, Interval(0, 100)]], NotEmpty()] = (0, 25, 50, 75, 100),
        seed: Seed = 0,
    ) -> None:
        super().__init__()
        self.sequences, self.length, self.needles = sequences, length, needles
        self.lengths, self.depths, self.seed = tuple(lengths), tuple(depths), seed

    def compute(self) -> Result:
        """All passes: nothing here depends on the corpus."""
        subject = self.subject
        cells = np.full((2, 4, len(self.sites), self.heads, len(TESTS)), np.nan)  # score, control, excess, count
        made = sequences(subject, self.sequences, self.length, self.seed)
        for site, both in repeat_scores(subject, made).items():
            self._put(cells, self.position[site], slice(0, len(REPEATED)), both.numpy())
        trials, reason = self._trials(subject)
        good = [trial for trial in trials if trial.recall >= haystack.LEAST_RECALL]
        for site in good[0].copied if good else ():
            copied = torch.stack([trial.copied[site] for trial in good]).double()[:, :, None]
            self._put(cells, self.position[site], slice(len(REPEATED), None), copied.numpy())
        variables = self._arrays(cells) | _recall(trials)
        result = self.result(variables, descriptions=_DESCRIPTIONS)
        result.data.attrs |= {"sequences": self.sequences, "tokens": made.inner.stop - made.inner.start}
        result.data.attrs |= {"trials": len(trials), "found": len(good), "without_needle": reason}
        return result

    @staticmethod
    def _put(cells: np.ndarray, site: int, tests: slice, both: np.ndarray) -> None:
        """Means and standard errors of [item head test both] over items."""
        each = np.concatenate([both, both[..., :1] - both[..., 1:]], -1)
        heads = slice(0, each.shape[1])
        for number in range(3):
            found = Estimate.mean(np.moveaxis(each[..., number], 0, -1))
            cells[0, number, site, heads, tests], cells[1, number, site, heads, tests] = found.value, found.se
        cells[0, 3, site, heads, tests] = len(each)

    def _trials(self, subject: Subject) -> tuple[list[haystack.Trial], str]:
        """One trial for each needle, length and depth; none, and why, for a model that cannot copy one out."""
        if not self.needles:
            return [], "no needles were asked for"
        try:
            haystack.refuse(subject)
        except UserError as error:
            return [], str(error)
        lengths = [size for size in self.lengths if self._has_room(subject, size)]
        if not lengths:
            return [], f"the model takes {subject.limit} tokens, too few for a haystack, its question and the answer"
        cases = product(lengths, self.depths, range(self.needles))
        return [haystack.tried(subject, size, depth, self.seed + number) for size, depth, number in cases], ""

    def _has_room(self, subject: Subject, size: int) -> bool:
        """Whether every haystack of this length fits into the model's positions."""
        if subject.limit is not None and size > subject.limit:
            return False
        made = (haystack.haystack(subject, size, *case) for case in product(self.depths, self._seeds))
        return all(haystack.fits(subject, each) for each in made)

    @property
    def _seeds(self) -> range:
        return range(self.seed, self.seed + self.needles)

    def _arrays(self, cells: np.ndarray) -> dict[str, xr.DataArray]:
        grid = {axes.TEST: TESTS}
        count = self.grid(torch.from_numpy(cells[0, 3]), grid).fillna(0).astype("int64")
        out: dict[str, xr.DataArray] = {}
        for number, name in enumerate(("score", "control", "excess")):
            mean, error = (self.grid(torch.from_numpy(cells[row, number]), grid) for row in (0, 1))
            out |= {name: mean, f"{name}_se": error, f"{name}_count": count}
        q = out["excess"].copy()
        for test in range(len(TESTS)):
            excess = (out[name].values[..., test] for name in ("excess", "excess_se", "excess_count"))
            q.values[..., test] = false_discovery(Estimate(*excess).p_above)
        return out | {"excess_q": q, "excess_q_count": count.where(q.notnull(), 0)}


def _recall(trials: Sequence[haystack.Trial]) -> dict[str, xr.DataArray]:
    """[length depth]; nothing without a trial."""
    if not trials:
        return {}
    lengths, depths = (list(dict.fromkeys(getattr(trial, name) for trial in trials)) for name in ("length", "depth"))
    said = np.full((3, len(lengths), len(depths)), np.nan)
    for (row, size), (column, depth) in product(enumerate(lengths), enumerate(depths)):
        values = [trial.recall for trial in trials if (trial.length, trial.depth) == (size, depth)]
        found = Estimate.mean(values)
        said[:, row, column] = found.value, found.se, found.count
    arrays = [xr.DataArray(part, dims=(axes.LENGTH, axes.DEPTH), coords={axes.LENGTH: lengths, axes.DEPTH: depths})
              for part in said]  # fmt: skip
    return {"recall": arrays[0], "recall_se": arrays[1], "recall_count": arrays[2].astype("int64")}
