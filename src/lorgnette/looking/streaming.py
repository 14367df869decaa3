"""Which key heads can stream: ranked on some texts, masked together on others, written for the tools that use it."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import xarray as xr

from lorgnette import axes
from lorgnette.constraints import Interval, Seed, Share, check, checked
from lorgnette.display import Facts
from lorgnette.errors import UserError
from lorgnette.files import folder_written_whole
from lorgnette.lens.base import Lens
from lorgnette.lens.context.lens import Context
from lorgnette.lens.context.together import CHOICE, COUNT, LEAST, RANDOM, KeyHead, StreamedTogether
from lorgnette.lens.context.windowed import Stream
from lorgnette.looking.look import look
from lorgnette.looking.processes import ProcessRank
from lorgnette.looking.texts import Texts
from lorgnette.progress import tell_cost
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate
from lorgnette.subject import Subject, refuse_no_subject
from lorgnette.texts import as_examples, texts_of
from lorgnette.texts.annotated import share
from lorgnette.types import Json

if TYPE_CHECKING:
    import pandas as pd

    from lorgnette.figures.plot import Plot

STEPS = 8
"""Sizes of sets that are tried: so many even steps up to all key heads."""
PATTERN, CONFIG = "full_attention_heads.tsv", "config.json"
"""The files of an attention pattern of DuoAttention, which kvpress reads too."""


@dataclass(frozen=True, repr=False)
class StreamingHeads(Facts):
    """Which key heads of a causal model can forget all but the first and the last tokens, and what that costs.

    >>> streaming.to_dataframe().columns.tolist()[:4]
    ['layer', 'key_head', 'change', 'change_se']
    """

    subject: str
    stream: Stream
    needs: "pd.DataFrame"
    tried: Result
    """the change of the loss on the test texts, by number of key heads, for the least needed and for random ones"""
    chosen: int
    """how many key heads stream: the most whose loss on the development texts rises by at most `loss`"""
    loss: float
    texts: tuple[int, int]
    """long enough texts to rank on, and to test on"""

    def facts(self) -> dict[str, object]:
        total = len(self.needs)
        said: dict[str, object] = {"streaming": f"{self.chosen} of {total} key heads ({self.chosen / total:.0%})"}
        if self.chosen:
            found = self.change
            said["loss"] = f"{found.value:+.4f} [{found.low:+.4f}, {found.high:+.4f}] nats per token on held-out texts"
        return said

    def __repr__(self) -> str:
        return f"StreamingHeads({'; '.join(f'{name} {value}' for name, value in self.facts().items())})"

    @property
    def change(self) -> Estimate:
        """How far the loss on the test texts rises when the chosen key heads stream together."""
        if not self.chosen:
            return Estimate(0.0, 0.0, self.texts[1])
        return self._estimate("change", {CHOICE: LEAST, COUNT: self.chosen})

    @checked
    def saved(self, tokens: int) -> float:
        """The share of the cache of keys and values that is saved for a text of so many tokens."""
        return self.chosen / len(self.needs) * max(0.0, 1 - self.stream.size / max(1, tokens))

    def to_dataframe(self) -> "pd.DataFrame":
        """A row per key head, the least needed first: the change of the loss without the far context, and its kind."""
        return self.needs.assign(kind=np.where(np.arange(len(self.needs)) < self.chosen, "streaming", "retrieval"))

    def curve(self) -> "pd.DataFrame":
        """The change of the loss on the test texts by number of key heads that stream, beside random sets as large."""
        import pandas as pd

        rows = []
        for count in self.tried.data[COUNT].values.tolist():
            least, drawn = (self._estimate("change", {CHOICE: which, COUNT: count}) for which in (LEAST, RANDOM))
            gain = self._estimate("under_random", {COUNT: count})
            rows.append({
                "key_heads": count, "share": count / len(self.needs),
                "change": least.value, "low": least.low, "high": least.high,
                "random": drawn.value, "random_low": drawn.low, "random_high": drawn.high,
                "under_random": gain.value, "under_random_low": gain.low, "under_random_high": gain.high,
            })  # fmt: skip
        return pd.DataFrame(rows)

    def pattern(self) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
        """[layer key_head]: 0 for the least needed, 1 for the most needed, in even steps between.

        DuoAttention and kvpress let a given share of the key heads stream, those of the lowest numbers.
        """
        layers = self.needs.groupby("layer")["key_head"].max()
        if layers.nunique() != 1 or self.needs.groupby("layer").size().nunique() != 1:
            raise UserError(
                f"The layers of {self.subject!r} have different numbers of key heads, and the format has none for that."
            )
        numbers = {layer: row for row, layer in enumerate(layers.index)}
        out = np.zeros((len(numbers), int(layers.iloc[0])))
        for place, row in enumerate(self.needs.itertuples()):
            out[numbers[row.layer], row.key_head - 1] = place / max(1, len(self.needs) - 1)
        return out

    def plot(self) -> "Plot":
        """What the loss loses without the far context of each key head, and of the least needed ones together."""
        import altair as alt

        from lorgnette.figures.charts import COLOURS, signed_scale
        from lorgnette.figures.plot import Plot

        heads: list[Json] = self.to_dataframe()[["layer", "key_head", "change", "kind"]].to_dict("records")
        most = max((abs(each["change"]) for each in heads), default=1.0) or 1.0
        base = alt.Chart(alt.Data(values=heads), width=alt.Step(24), height=alt.Step(14)).encode(
            x=alt.X(field="key_head", type="ordinal", title="key head", axis=alt.Axis(labelAngle=0)),
            y=alt.Y(field="layer", type="ordinal", title="layer", sort="descending"),
        )
        nats = alt.Legend(title="nats")
        cells = base.mark_rect().encode(
            color=alt.Color(field="change", type="quantitative", scale=signed_scale(most), legend=nats)
        )
        marks = base.transform_filter("datum.kind == 'retrieval'").mark_point(color="black", size=14, filled=True)
        curve: list[Json] = []
        for row in self.curve().to_dict("records"):
            for kind, low, high in (("change", "low", "high"), ("random", "random_low", "random_high")):
                name = "least needed" if kind == "change" else "random"
                curve.append({"count": row["key_heads"], "value": row[kind], "low": row[low], "high": row[high],
                              "sets": name})  # fmt: skip
        lines = alt.Chart(alt.Data(values=curve), width=340, height=200).encode(
            x=alt.X(field="count", type="quantitative", title="key heads that stream together"),
            color=alt.Color(
                field="sets",
                type="nominal",
                legend=alt.Legend(title=None, orient="top"),
                scale=alt.Scale(domain=["least needed", "random"], range=[COLOURS[0], COLOURS[-1]]),
            ),
        )
        value = alt.Y(field="value", type="quantitative", title="increase of the loss (nats per token)")
        together = lines.mark_line(point=True).encode(y=value) + lines.mark_rule(opacity=0.6).encode(
            y=alt.Y(field="low", type="quantitative"), y2=alt.Y2(field="high")
        )
        charts = {"Without the far context of one key head (dots: it keeps its context)": cells + marks,
                  "Without that of several, on the test texts (95 % intervals)": together}  # fmt: skip
        return Plot.below_each_other(charts, f"Key heads of {self.subject} that can stream")

    @checked
    def page(self, path: "str | PathLike[str]") -> Path:
        """The answer, the figure and both tables as one page that needs no network."""
        from lorgnette.figures.plain_page import write_answer

        tables = {"Key heads, the least needed first": self.to_dataframe(), "Together, on the test texts": self.curve()}
        said = "; ".join(f"{name}: {value}" for name, value in self.facts().items())
        return write_answer(path, f"Which key heads of {self.subject} can stream?", said, self.plot(), tables)

    def press(self) -> object:
        """The pattern as a `DuoAttentionPress` of kvpress: `with streaming.press()(model): model.generate(…)`.

        kvpress itself loads patterns only from the repository of DuoAttention's authors.
        """
        try:
            made = import_module("kvpress").DuoAttentionPress
        except ImportError:
            raise UserError("This needs the package 'kvpress'. Install it: pip install kvpress") from None
        press = made(head_compression_ratio=self.chosen / len(self.needs))
        press.load_attention_pattern = lambda model: (self.stream.sinks, self.stream.window, self.pattern())
        return press

    def save(self, folder: "str | PathLike[str]") -> Path:
        """Write the pattern in the format of DuoAttention (kvpress reads it too), and the two tables as CSV."""
        pattern, files = self.pattern(), {PATTERN, CONFIG, "heads.csv", "curve.csv"}
        with folder_written_whole(folder, lambda _: files) as partial:
            np.savetxt(partial / PATTERN, pattern, delimiter="\t")
            config = {
                "model_name": self.subject, "sink_size": self.stream.sinks, "recent_size": self.stream.window,
                "sparsity": self.chosen / len(self.needs),
            }  # fmt: skip
            (partial / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
            self.to_dataframe().to_csv(partial / "heads.csv", index=False)
            self.curve().to_csv(partial / "curve.csv", index=False)
        return Path(folder)

    def _estimate(self, variable: str, at: dict[str, str | int]) -> Estimate:
        found = Estimate.of(self.tried.data, variable, at)
        return Estimate(float(found.value), float(found.se), int(found.count))


def stream(
    subject: Subject,
    corpus: Texts,
    *,
    loss: float = 0.01,
    sinks: int = 4,
    window: int = 64,
    draws: int = 3,
    development: float = 0.5,
    seed: int = 0,
    truncate: bool = False,
    progress: bool = True,
) -> StreamingHeads:
    """Find the key heads that can forget all but the first and the last tokens: the command `lorgnette stream`.

        >>> streaming = lo.stream(language_model, ["the cat sat on the mat ."] * 9, sinks=1, window=2, progress=False)
        >>> streaming.save("pattern").name
        'pattern'

    On the development texts, every key head (all query heads that share keys and values) is masked alone, which ranks
    them, and the least needed are masked together, in eight sizes: as many stream as raise the loss by at most `loss`
    nats per token. On the test texts, the same sets are compared with `draws` random sets of each size. A hash of its
    id puts a share `development` of the texts among the former. Xiao et al. 2024, "DuoAttention".

    What it does not tell you: what the model loses on other texts. A corpus in which nothing distant matters lets every
    head stream; give texts whose next words depend on what stands far before them.
    """
    refuse_no_subject(subject, "stream")
    for name, value, annotation in (
        ("loss", loss, Annotated[float, Interval(0)]), ("sinks", sinks, Annotated[int, Interval(0)]),
        ("window", window, Annotated[int, Interval(1)]), ("draws", draws, Annotated[int, Interval(1, 1000)]),
        ("development", development, Share), ("seed", seed, Seed),
    ):  # fmt: skip
        check(value, annotation, name)
    examples = as_examples(texts_of(corpus))
    early = [each for each in examples if share(f"part/{each.id}") < development]
    late = [each for each in examples if not share(f"part/{each.id}") < development]
    kept = Stream(sinks, window)
    if progress and ProcessRank.join().first:
        tell_cost("stream", cost(subject, draws))
    if min(len(early), len(late)) < 2:
        raise UserError(
            f"{len(early)} texts to rank heads on and {len(late)} to test them on: two of each are needed. Give "
            "more texts."
        )
    lens = Context(sinks, (window,), window, losses="shared")
    ranked = _text_by_text(subject, early, lens, truncate, progress)
    order, needs = _ranking(subject, ranked)
    sizes = sorted({max(1, round(len(order) * step / STEPS)) for step in range(1, STEPS + 1)})
    own = {size: [order[:size]] for size in sizes}
    first = _together(subject, early, kept, own, truncate, progress)
    rises = first.data["change"].sel({CHOICE: LEAST})
    fitting = [size for size in sizes if float(rises.sel({COUNT: size})) <= loss]
    dice = random.Random(int(seed))
    drawn = {size: [order[:size], *(dice.sample(order, size) for _ in range(draws))] for size in sizes}
    tried = _together(subject, late, kept, drawn, truncate, progress)
    texts = int(first.data["loss_count"]), int(tried.data["loss_count"])
    return StreamingHeads(subject.name, kept, needs, tried, max(fitting, default=0), loss, texts)


def cost(subject: Subject, draws: int) -> str:
    """What `stream` will run, said before it begins."""
    sites = subject.anatomy.sites
    return (
        f"{sum(each.groups for each in sites)} key heads in {len(sites)} layers: on the development texts a part of a "
        f"pass for each of them and {STEPS} passes, on the test texts {STEPS * (1 + draws)} passes"
    )


def _together(
    subject: Subject, examples: Sequence[object], kept: Stream, sets: dict[int, list[list[KeyHead]]], truncate: bool,
    progress: bool,
) -> Result:  # fmt: skip
    found = _text_by_text(subject, examples, StreamedTogether(kept, sets), truncate, progress)
    if not int(found.data["loss_count"]):
        raise _too_short(kept)
    return found


def _text_by_text(subject: Subject, examples: Sequence[object], lens: Lens, truncate: bool, progress: bool) -> Result:
    """Every text is a batch of its own: its copies with masked heads run together anyway, and progress is told."""
    return look(subject, examples, [lens], batch_tokens=1, truncate=truncate, progress=progress)[lens.name]


def _too_short(kept: Stream) -> UserError:
    return UserError(
        f"No text has more than {kept.size} tokens, those that a streaming head keeps. Give longer texts, or fewer "
        "sinks and a smaller window."
    )


def _ranking(subject: Subject, result: Result) -> "tuple[list[KeyHead], pd.DataFrame]":
    """The key heads, the least needed first, and a table of them."""
    import pandas as pd

    rows = sorted(_rows(subject, result.data), key=lambda pair: (pair[1]["change"], pair[0][0].layer, pair[0][1]))
    return [head for head, _ in rows], pd.DataFrame([row for _, row in rows])


def _rows(subject: Subject, data: xr.Dataset) -> Iterator[tuple[KeyHead, dict[str, float]]]:
    name = "shared_change" if "shared_change" in data else "loss_change"
    if not int(data["loss_count"]):
        raise _too_short(Stream(int(data.attrs["sinks"]), int(data.attrs["size"])))
    for attention in subject.anatomy.sites:
        each = attention.heads // attention.groups
        for group in range(attention.groups):
            heads = [number + 1 for number in attention.numbers[group * each : (group + 1) * each]]
            at = {axes.STACK: attention.site.name, axes.LAYER: attention.site.layer + 1, axes.HEAD: heads}
            own = data.sel(at)
            yield (
                (attention.site, group),
                {
                    "layer": attention.site.layer + 1,
                    "key_head": group + 1,
                    "change": float(own[name][0]),
                    "change_se": float(own[f"{name}_se"][0]),
                    "retrieval_excess": float(own["retrieval_excess"].max()),
                    "far_mass": float(own["far_mass"].mean()),
                },
            )
