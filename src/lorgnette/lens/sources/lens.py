"""Over many prompts: which signal finds the part that the answer uses, and at which heads."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette import axes
from lorgnette.errors import UserError, near
from lorgnette.explaining.backward import EVEN
from lorgnette.explaining.sources.measuring import MATTERS, SIGNALS, Sources, listed_names, used
from lorgnette.explaining.sources.parts import answered_prompt, refuse_silent
from lorgnette.lens.base import Lens
from lorgnette.lens.moments import Moments
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate, false_discovery
from lorgnette.statistics.hash_sample import NAME, Column, HashSample, as_names
from lorgnette.statistics.hashing import text_key
from lorgnette.statistics.spearman import spearman
from lorgnette.subject import Subject
from lorgnette.subject.generation import Generation
from lorgnette.texts.batch import Batch
from lorgnette.types import ModelOutput

BLIND = ("length", "recency")
"""Baselines that do not look at the model: the number of tokens, and how close to the answer a part is."""
RANKED = ("drop", "alone", "relevance", "norm", "attention", *BLIND)
"""What ranks the sources of a prompt; the drop is what the others are compared with."""
COLUMNS = ("tokens", "compared", "attention", "norm", "relevance", "drop", "alone")
PROMPTS = "prompts"
"""Attribute of the result: the answer of each prompt, how likely it is, and the part that begins the text."""
GOLD = "gold"
"""Name in `Example.extra`: the part that holds what the answer needs."""
_DESCRIPTIONS = {
    "agreement": "Spearman's ρ between a signal's ranking of the sources and that by their drops, mean over prompts in "
    "which a source matters",
    "agreement_difference": "difference of two signals' agreement, mean over prompts",
    "agreement_difference_q": "p of the difference (paired t test over prompts), corrected over all pairs",
    "found": "share of the prompts in which a source matters whose largest drop the signal ranks first",
    "gold": "share of the prompts with a gold part whose gold part the signal ranks first",
    "chance": "share that a random ranking would find: 1 / number of sources, mean over prompts in which one matters",
    "matters": "share of prompts in which the answer is at most half as likely without one of the sources",
    "largest_drop": "largest drop of a source, in nats, mean over prompts",
    "log_probability": "log P(answer | prompt) in nats, mean over prompts",
    "difference_without_any": "log P(answer) minus log P(answer) with all sources masked out, mean over prompts",
    "head_agreement": "Spearman's ρ between the sources' signal at a head and their drops, mean over prompts in which "
    "a source matters",
    "head_agreement_q": "p that the agreement is not above 0 (t test over prompts), corrected over heads",
    "tokens": "tokens of a part",
    "compared": "1 for a source that is compared, 0 for a part that is not",
    "attention": "weight of a part, mean over heads and the rows that say the answer",
    "norm": "share of a part in the norm that these rows take",
    "relevance": "relevance of a part for the summed logits of the answer",
    "drop": "log P(answer) minus log P(answer) with the part masked out, in nats",
    "alone": "log P(answer) with this source alone minus log P(answer) with none, in nats",
    "head_attention": "weight of a part at a head, mean over the rows that say the answer",
    "head_norm": "norm of what a head takes from a part, mean over these rows, in the model's units",
    "head_relevance": "relevance of a part at a head for the summed logits of the answer",
}


class SourceSignals(Lens):
    """Which signal ranks the parts of a prompt as masking them out does, over prompts with answers (see `lo.sources`).

        drop(p)     log P(answer | prompt) − log P(answer | prompt, p masked out in every layer)
        agreement   Spearman's ρ of a signal with the drops over the sources of a prompt, mean over prompts
        found       share of prompts in which the source with the largest drop has the largest signal

    Signals are `alone` (log P with this source alone), `relevance`, `norm` and `attention`, the last three also at
    every head, and two baselines: `length` and `recency`. Both numbers are over prompts in which a source matters:
    without it the answer is at most half as likely. Texts have parts and perhaps an answer (else the model answers,
    with at most `generate` tokens); `among` names the sources that are compared, by default every part but the last.
    Where `gold` names a part, `gold` says how often a signal, or the drop, ranks it first. `heads` keeps the attention,
    norm and relevance of every part at every head, as `head_attention` and so on.

    What it does not tell you: that a source with a small drop was not read: another may say the same.
    """

    name: ClassVar[str] = "sources"
    summary: ClassVar[str] = "which parts of a prompt the answer uses, and which signal and heads tell"
    reads = frozenset({"tokens", "cpu"})

    def __init__(
        self, among: Sequence[str] | str | None = None, generate: int = 32, method: str = "attnlrp", heads: bool = False
    ) -> None:
        super().__init__()
        if method not in EVEN:
            raise UserError(
                f"The 'method' of sources must be one of {', '.join(EVEN)}.{near(method, EVEN)} Got {method!r} instead."
            )
        self.among: tuple[str, ...] | None = listed_names(among)
        self.generation: Generation = Generation(generate)
        self.method, self.keeps_heads = method, heads
        self.announced = ""
        """what all prompts take, if somebody has counted"""

    def cost(self) -> str:
        return self.announced or (
            "for each prompt one pass for attention and norms, one forward and backward for relevance, a copy with a "
            "masked part for each part and a copy with all others masked for each source"
        )

    def allocate(self, subject: Subject) -> None:
        refuse_silent(subject)
        by = {axes.SIGNAL: RANKED}
        self.of_signals: Moments = Moments(self, ("agreement", "found", "gold"), by, at="corpus")
        two = {axes.SIGNAL: RANKED, axes.SIGNAL_B: RANKED}
        self.differences: Moments = Moments(self, "agreement_difference", two, at="corpus")
        whole = ("matters", "largest_drop", "log_probability", "difference_without_any", "chance")
        self.of_prompts: Moments = Moments(self, whole, at="corpus")
        self.of_heads: Moments = Moments(self, "head_agreement", {axes.MEASURE: SIGNALS})
        columns = {"id": NAME, "parts": NAME, "answer": NAME, "beginning": NAME, "likelihood": Column((2,))}
        columns |= {"table": Column((len(COLUMNS),), ragged=True)}
        if self.keeps_heads:
            columns["heads"] = Column((len(self.sites), self.heads, len(SIGNALS)), torch.float32, ragged=True)
        self.rows: HashSample = HashSample(self, "rows", columns, size=None)

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """Each prompt by itself: its copies with hidden parts are a batch."""
        for row, example in enumerate(batch.examples):
            case = answered_prompt(self.subject, example, self.among, self.generation)
            if sum(case.among) < 2:
                raise UserError(
                    f"The prompt {example.id!r} has one source ({', '.join(case.names)}): there is nothing to rank. "
                    "Give prompts with at least two, or use lo.sources for a single one."
                )
            with torch.enable_grad():
                found = used(self.subject, case, self.method)
            self._add(row, example.id, found, example.extra.get(GOLD))

    def _add(self, row: int, name: str, found: Sources, gold: object) -> None:
        data, rows = found.data, [row]
        parts = [str(part) for part in data[axes.SOURCE].values]
        if gold is not None and gold not in parts:
            raise UserError(f"The gold part {gold!r} of {name!r} is none of its parts: {', '.join(parts)}.")
        among = data["compared"].values.astype(bool)
        signals = {key: data[key].values[among] for key in ("drop", "alone", *SIGNALS)}
        signals |= {
            "length": data["tokens"].values[among].astype(float),
            "recency": np.arange(among.sum(), dtype=float),
        }
        drop, matters = signals["drop"], bool(signals["drop"].max() >= MATTERS)
        ranks = [spearman(signals[key], drop) if matters and key != "drop" else None for key in RANKED]
        first = [_first(signals[key]) == _first(drop) if matters and key != "drop" else None for key in RANKED]
        named = np.array(parts)[among]
        told = [None if gold not in named else str(named[_first(signals[key])]) == gold for key in RANKED]
        self.of_signals.add(None, rows, agreement=_known(ranks), found=_known(first), gold=_known(told))
        value, weight = _known(ranks)
        apart, both = value[:, :, None] - value[:, None], weight[:, :, None] * weight[:, None]
        self.differences.add(None, rows, agreement_difference=(apart, both))
        whole = {
            "matters": float(matters),
            "largest_drop": float(drop.max()),
            "log_probability": found.log_probability,
            "difference_without_any": found.log_probability - found.without_any,
        }
        one = torch.ones(1, dtype=torch.float64)
        chance = {"chance": (one / len(drop), one * matters)}
        self.of_prompts.add(None, rows, **{key: (one * number, one) for key, number in whole.items()}, **chance)
        self._add_heads(rows, found, among, drop if matters else None)
        table = torch.tensor(np.stack([data[key].values.astype(float) for key in COLUMNS], 1))
        number = torch.tensor([text_key(name) >> 11], dtype=torch.int64)
        likelihood = torch.tensor([[found.log_probability, found.without_any]], dtype=torch.float64)
        columns: dict[str, Tensor | Sequence[Tensor]] = {
            "id": as_names([name]), "parts": as_names(["\n".join(parts)]), "answer": as_names([found.answer]),
            "beginning": as_names([found.beginning or ""]), "likelihood": likelihood, "table": [table],
        }  # fmt: skip
        if self.keeps_heads:
            columns["heads"] = [self._at_heads(data)]
        self.rows.add(number, None, 0, **columns)

    def _at_heads(self, data: xr.Dataset) -> Float[Tensor, "part site head signal"]:
        """The signals of every part at the heads that are there, those of a pruned site in front."""
        values = np.stack([data[f"head_{key}"].transpose(axes.SOURCE, axes.LAYER, axes.HEAD) for key in SIGNALS], -1)
        out = torch.zeros(len(values), len(self.sites), self.heads, len(SIGNALS))
        for place, site in enumerate(self.sites):
            own = list(self.numbers[site])
            out[:, place, : len(own)] = torch.from_numpy(values[:, site.layer, own])
        return out

    def _add_heads(
        self, rows: Sequence[int], found: Sources, among: Bool[np.ndarray, " part"], drop: np.ndarray | None
    ) -> None:
        for site in self.sites:
            own = list(self.numbers[site])
            ranks: list[list[float | None]] = []
            for head in own:
                at = [found.data[f"head_{key}"].values[site.layer, head][among] for key in SIGNALS]
                ranks.append([None if drop is None else spearman(values, drop) for values in at])
            value, weight = _known([rank for head in ranks for rank in head])
            shape = (1, len(own), len(SIGNALS))
            self.of_heads.add(site, rows, head_agreement=(value.view(shape), weight.view(shape)))

    def compute(self) -> Result:
        """Agreement with deletion of each signal and head, and a row for every part of every prompt."""
        parts = (self.of_signals, self.differences, self.of_prompts, self.of_heads)
        variables: dict[str, xr.DataArray] = {name: array for part in parts for name, array in part.arrays().items()}
        q = pairs_of_signals(Estimate.of(xr.Dataset(variables), "agreement_difference"))
        heads = variables["head_agreement"].copy()
        p = Estimate.of(xr.Dataset(variables), "head_agreement").p_above
        for signal in SIGNALS:
            at = {axes.MEASURE: signal}
            heads.loc[at] = false_discovery(p.sel(at))
        variables |= {"agreement_difference_q": q, "head_agreement_q": heads}
        variables |= {f"{name}_count": variables[name].notnull().astype("int64")
                      for name in ("agreement_difference_q", "head_agreement_q")}  # fmt: skip
        variables |= self._table()
        result = self.result(variables, descriptions=_DESCRIPTIONS)
        among = "every part but the last" if self.among is None else ", ".join(self.among)
        result.data.attrs |= {"among": among, "method": self.method, "matters": MATTERS, PROMPTS: self._prompts()}
        return result

    def _prompts(self) -> dict[str, dict[str, str | float | None]]:
        """Of every prompt its answer, log P(answer) with and without all sources, and the part that begins the text."""
        rows = self.rows.rows()
        each = zip(rows.names("id"), rows.names("answer"), rows.names("beginning"), rows.columns["likelihood"].tolist(),
                   strict=True)  # fmt: skip
        return {
            name: {"answer": answer, "log_probability": whole, "without_any": none, "beginning": beginning or None}
            for name, answer, beginning, (whole, none) in sorted(each, key=lambda one: (len(one[0]), one[0]))
        }

    def _table(self) -> dict[str, xr.DataArray]:
        rows = self.rows.rows()
        tables = rows.pieces("table")
        at_heads = rows.pieces("heads") if self.keeps_heads else tables
        prompts = sorted(
            zip(rows.names("id"), rows.names("parts"), tables, at_heads, strict=True),
            key=lambda one: (len(one[0]), one[0]),
        )
        labels = [f"{name}: {part}" for name, parts, *_ in prompts for part in parts.split("\n")]
        numbers = torch.cat([one.view(-1, len(COLUMNS)) for *_, one, _ in prompts]).numpy()
        arrays = {
            name: xr.DataArray(numbers[:, place], dims=(axes.SOURCE,), coords={axes.SOURCE: labels})
            for place, name in enumerate(COLUMNS)
        }
        for name in ("tokens", "compared"):
            arrays[name] = arrays[name].astype("int64")
        if self.keeps_heads:
            shape = (-1, len(self.sites), self.heads, len(SIGNALS))
            cells = torch.cat([one.view(shape) for *_, one in prompts]).movedim(0, -1)
            grid = self.of_heads.laid_out(cells, {axes.SOURCE: labels})
            for key in SIGNALS:
                own = grid.sel({axes.MEASURE: key}, drop=True)
                arrays |= {f"head_{key}": own, f"head_{key}_count": own.notnull().astype("int64")}
        return arrays | {"alone_count": arrays["compared"]}


def _first(values: Float[np.ndarray, " source"]) -> int:
    return int(np.argmax(values))


def _known(values: Sequence[float | bool | None]) -> tuple[Float[Tensor, "1 value"], Float[Tensor, "1 value"]]:
    """Values of one text, and 1 where there is one."""
    numbers = torch.tensor([[0.0 if value is None else float(value) for value in values]], dtype=torch.float64)
    return numbers, torch.tensor([[float(value is not None) for value in values]], dtype=torch.float64)


def pairs_of_signals(difference: Estimate) -> xr.DataArray:
    """p of every pair of signals, corrected over all pairs: whichever is best, it was chosen from all of them."""
    p = difference.p
    upper = np.triu(np.ones(p.shape, dtype=bool), 1)
    once = false_discovery(np.where(upper, p.values, np.nan))
    return p.copy(data=np.where(upper, once, once.T))
