"""For every part of a prompt: its attention, norm and relevance at every head, and what the answer loses without it."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Site
from lorgnette.constraints import checked
from lorgnette.display import NotebookDisplay, plot_of, sources_page_of
from lorgnette.errors import UserError, flag, listed, shown
from lorgnette.explaining.backward import EVEN, relevance_by_part
from lorgnette.explaining.sources.masking import Likelihood
from lorgnette.explaining.sources.parts import AnsweredPrompt, answered_prompt, cost, planned, refuse_silent
from lorgnette.explaining.sources.signals import AnswerRows
from lorgnette.explaining.target import Next
from lorgnette.progress import progress_bar, tell_cost
from lorgnette.subject import Subject, refuse_no_subject
from lorgnette.subject.generation import Generation
from lorgnette.texts.example import Example
from lorgnette.texts.parts import answered, chat, prompt
from lorgnette.texts.readable import readable

if TYPE_CHECKING:
    import pandas as pd

    from lorgnette.figures.plot import Plot

SIGNALS = ("attention", "norm", "relevance")
"""What every head has for every part."""
MATTERS = math.log(2)
"""Nats: without a source that matters, the answer is at most half as likely."""
_DESCRIPTIONS = {
    "tokens": "tokens of the part",
    "compared": "whether the part is one of the sources, of which one at a time is left visible",
    "attention": "weight of the part, mean over heads and over the rows that say the answer",
    "norm": "norm of what the heads take from the part, as a share of all that they take, over the same rows",
    "relevance": "relevance of the part's tokens for the summed logits of the answer",
    "drop": "log P(answer) minus log P(answer) with the part masked out, in nats",
    "alone": "log P(answer) with this source alone minus log P(answer) with none of the sources, in nats",
}


@dataclass(frozen=True, repr=False)
class Sources(NotebookDisplay):
    """What an answer used of its prompt, part by part.

        >>> prompt = lo.prompt({"document 1": "the cat sat", "document 2": "a dog ran", "question": "it was"})
        >>> used = lo.sources(language_model, prompt, " good")
        >>> list(used.to_dataframe().columns)
        ['part', 'tokens', 'compared', 'attention', 'norm', 'relevance', 'drop', 'alone']

    `data` is an `xarray.Dataset`: the same by `source`, and by layer, head and source `head_attention`, `head_norm` and
    `head_relevance`. `heads("attention", "document 2")` is a map of the heads.
    """

    prompt: Example
    answer: str
    tokens: int
    """of the answer"""
    data: xr.Dataset
    log_probability: float
    """log P(answer | prompt), in nats, summed over the answer's tokens"""
    without_any: float
    """the same with all sources masked out"""
    beginning: str | None = None
    """the part with the first token of the text, where many heads rest; None if the template has it"""

    @property
    def first(self) -> str | None:
        """The source without which the answer loses most; None if it stays more than half as likely without any one."""
        drops = self.data["drop"].where(self.data["compared"])
        best = int(np.nanargmax(drops.values))
        return str(drops[axes.SOURCE].values[best]) if float(drops[best]) >= MATTERS else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know before reading the table."""
        return () if self.beginning is None else (rests(self.beginning),)

    def to_dataframe(self) -> "pd.DataFrame":
        """A row per part, in the order of the prompt."""
        frame = self.data[list(_DESCRIPTIONS)].to_dataframe().reset_index()
        return frame.rename(columns={axes.SOURCE: "part"})[["part", *_DESCRIPTIONS]]

    @checked
    def heads(self, signal: str = "attention", part: str | None = None) -> xr.DataArray:
        """[layer head source], or [layer head] of one part: its attention, norm or relevance at every head."""
        if signal not in SIGNALS:
            raise UserError(f"The signals of heads are {', '.join(SIGNALS)}. Got {shown(signal)} instead.")
        array = self.data[f"head_{signal}"]
        if part is None:
            return array
        if part not in array[axes.SOURCE].values:
            raise UserError(f"There is no part {part!r}. There are: {', '.join(map(str, array[axes.SOURCE].values))}.")
        return array.sel({axes.SOURCE: part}, drop=True)

    def plot(self) -> "Plot":
        """What the answer loses without each part, beside attention, norm and relevance: `.save("sources.svg")`."""
        return plot_of(self)

    @checked
    def save(self, path: str | os.PathLike[str]) -> Path:
        """The figure, the table and the prompt as one page that needs no network."""
        return sources_page_of(self, path)

    def __repr__(self) -> str:
        lines = [
            f"Sources: {readable(self.answer)!r} has log P {_number(self.log_probability)} nats, "
            f"{_number(self.without_any)} without any source"
        ]
        frame = self.to_dataframe()
        wide = max(len("part"), *(len(name) for name in frame["part"]))
        lines.append(f"  {'part':{wide}}  tokens  attention   norm  relevance    drop   alone")
        for row in frame.to_dict("records"):
            alone = "–" if np.isnan(row["alone"]) else _number(row["alone"])
            mark = "*" if row["part"] == self.first else " "
            lines.append(
                f"{mark} {row['part']:{wide}}  {row['tokens']:6d}  {row['attention']:9.3f}  {row['norm']:5.3f}  "
                f"{_number(row['relevance']):>9}  {_number(row['drop']):>6}  {alone:>6}"
            )
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])


def sources(
    subject: Subject,
    prompt: Example | Mapping[str, str] | Sequence[Mapping[str, object]],
    answer: str | None = None,
    *,
    among: str | Sequence[str] | None = None,
    generate: int | Generation = 32,
    method: str = "attnlrp",
    progress: bool = True,
) -> Sources:
    """Which parts of its prompt an answer used: the command `lorgnette sources`.

        >>> prompt = {"document 1": "the cat sat on the mat", "document 2": "a dog ran", "question": "it was"}
        >>> used = lo.sources(language_model, prompt, " good")
        >>> used.data["drop"].sizes["source"]
        3

    `prompt` is made by `lo.prompt` or `lo.chat`, or is what these take: named parts, or messages. `answer` is what
    follows it, as typed (to a prompt that is no chat, most tokenizers want a space before it); without one the model
    answers, with at most `generate` tokens. `among` names the sources that are compared ("document *" is a pattern): by
    default every part but the last, which asks.

        drop(p)    log P(answer | prompt) − log P(answer | prompt, p masked out)
        alone(p)   log P(answer | all other sources masked out) − log P(answer | all sources masked out)

    Masked out: in every layer, no token outside the part can attend to its tokens; positions stay as they are. The
    answer is read as it stands (teacher forcing). One pass for attention and norms, one forward and backward for
    relevance (`method`: attnlrp, ah or gradient_x_input), and two copies of the text for each source, run together.
    With `progress`, the cost is said before the first pass, and how many copies are done.

    What it does not tell you: that a source with a small drop was not read: another may say the same. See `alone`.
    """
    refuse_no_subject(subject, "sources")
    refuse_silent(subject)
    if not isinstance(method, str) or method not in EVEN:
        raise UserError(f"The method of sources is one of {', '.join(EVEN)}. Got {shown(method)} instead.")
    example = as_prompt(prompt)
    if answer is not None:
        example = answered(example, answer)
    generation = generate if isinstance(generate, Generation) else Generation(generate)
    flag(progress, "progress")
    named = listed_names(among)
    if progress:
        tell_cost("sources", cost([planned(subject, example, named)]))
    return used(subject, answered_prompt(subject, example, named, generation), method, progress=progress)


def listed_names(among: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Names of parts, or patterns, as a tuple."""
    if among is None:
        return None
    given = [among] if isinstance(among, str) else listed(among)
    names = tuple(name for name in given or () if isinstance(name, str))
    if not names or len(names) < len(given or ()):
        raise UserError(f"among takes names of parts, such as 'document *'. Got {shown(among)} instead.")
    return names


def as_prompt(given: object) -> Example:
    if isinstance(given, Example):
        return given
    if isinstance(given, Mapping):
        return prompt(given)
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise UserError(
            f"A prompt has named parts: lo.prompt(document=…, question=…), or lo.chat([…]). Got {shown(given)} instead."
        )
    return chat(given)


def used(subject: Subject, prompt: AnsweredPrompt, method: str, *, progress: bool = False) -> Sources:
    """All numbers of one prompt with its answer."""
    likelihood, rows = Likelihood(subject, prompt), AnswerRows(subject, prompt)
    whole = likelihood.whole(rows)
    compared = torch.tensor(prompt.among)
    hidden = _hidden(compared)
    with progress_bar("masking parts", len(hidden), enabled=progress, unit="copies") as advance:
        said = likelihood.without(hidden, advance)
    parts, count = len(prompt.names), int(compared.sum())
    drop, alone, none = said[:parts], said[parts : parts + count], float(said[-1])
    relevance, by_head = relevance_by_part(
        subject, prompt.batch, prompt.masks[None], method, Next(at=range(prompt.answer.start, prompt.answer.stop))
    )
    heads = {
        "head_attention": _grid(subject, rows.attention),
        "head_norm": _grid(subject, rows.norm),
        "head_relevance": _grid(subject, {site: values[0].double().cpu() for site, values in by_head.items()}),
    }
    norms = np.nansum(heads["head_norm"], (0, 1))
    left_alone = np.full(parts, np.nan)
    left_alone[compared.numpy()] = (alone - none).numpy()
    columns: dict[str, np.ndarray] = {
        "tokens": prompt.masks.sum(-1).cpu().numpy(),
        "compared": compared.numpy(),
        "attention": np.nanmean(heads["head_attention"], (0, 1))[:parts],
        "norm": norms[:parts] / norms.sum(),
        "relevance": relevance[0].double().cpu().numpy(),
        "drop": whole - drop.numpy(),
        "alone": left_alone,
    }
    variables: dict[str, tuple[Sequence[str], np.ndarray, dict[str, str]]] = {
        name: ((axes.SOURCE,), values, {"description": _DESCRIPTIONS[name]}) for name, values in columns.items()
    }
    for name, values in heads.items():
        about = {"description": f"{name.removeprefix('head_')} of the part at every head"}
        variables[name] = ((axes.LAYER, axes.HEAD, axes.SOURCE), values[..., :parts], about)
    layers, width = heads["head_norm"].shape[:2]
    labels = {axes.SOURCE: list(prompt.names), axes.LAYER: range(1, layers + 1), axes.HEAD: range(1, width + 1)}
    example = prompt.batch.examples[0]
    beginning = prompt.names[int(prompt.part[0])] if int(prompt.part[0]) >= 0 else None
    return Sources(example, prompt.said, len(prompt.answer), xr.Dataset(variables, labels), whole, none, beginning)


def _hidden(compared: Bool[Tensor, " part"]) -> Bool[Tensor, "copy part"]:
    """Which parts are hidden in each copy: each by itself, all sources but one, all sources."""
    each = torch.eye(len(compared), dtype=torch.bool)
    others = compared[None] & ~each[compared]
    return torch.cat([each, others, compared[None]])


def _grid(subject: Subject, by_site: Mapping[Site, Float[Tensor, "_ part"]]) -> Float[np.ndarray, "layer head part"]:
    """All layers and heads; NaN for heads that were removed."""
    layers = 1 + max(site.layer for site in by_site)
    parts = next(iter(by_site.values())).shape[1]
    out = np.full((layers, subject.heads, parts), np.nan)
    for site, values in by_site.items():
        out[site.layer, list(subject.anatomy[site].numbers)] = values.numpy()
    return out


def rests(part: str) -> str:
    """What to know of the part that has the first token of the text."""
    return (
        f"{part!r} has the first token of the text, where many heads rest: without it they lose that too, so its drop "
        "is not due to what it says alone. Put a part before it that is not compared."
    )


def _number(value: float) -> str:
    return f"{value:.2f}".replace("-", "−").replace("−0.00", "0.00")
