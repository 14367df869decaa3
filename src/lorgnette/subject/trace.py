"""The trace of one pass over one text."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor
from transformers.utils import ModelOutput

from lorgnette import axes
from lorgnette.attending import Call, Recorder, Site, Tap
from lorgnette.attending.recorder import PARTS
from lorgnette.attending.words import to_words
from lorgnette.constraints import checked
from lorgnette.display import NotebookDisplay, overlay_of, page_of, plot_of
from lorgnette.errors import UserError
from lorgnette.free_memory import free_memory
from lorgnette.subject import Subject
from lorgnette.subject.effect import Effect
from lorgnette.subject.knockout import Head, Knockout, head_names
from lorgnette.subject.recorded import RecordedPass
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.texts.example import Example
from lorgnette.texts.token_kinds import CATEGORIES
from lorgnette.texts.tower import tower_batch

if TYPE_CHECKING:
    from lorgnette.figures.plot import Plot
    from lorgnette.reporting.overlay import Overlay
    from lorgnette.subject.generation import Generated


@dataclass(frozen=True, repr=False)
class Trace(NotebookDisplay, RecordedPass):
    """All attention calls of one forward pass, by site, with the hidden states and the model's output.

    A call keeps queries, keys and values; weights are computed from them when they are asked for, so that a trace of a
    long text takes little memory, and `trace.head(layer, head)` the memory of one matrix.

        >>> trace = subject.trace("the cat sat")
        >>> trace["weights"].shape                          # [layer head query key]
        torch.Size([3, 4, 5, 5])
        >>> plot = trace.plot(layer=2, head=3)

    `trace.data("weights", words=True)` is a labelled array between words: attention to a word is the sum over its
    tokens, attention from a word the mean. `trace.show()` draws the views in a notebook, `trace.save("page.html")`
    writes them.
    """

    subject: Subject
    batch: Batch
    calls: dict[Site, Call]
    output: ModelOutput
    effect: Effect | None = None
    """The effect of the heads that are switched off on the output; None if none is."""
    is_cut: bool = False
    """Whether the text was too long for the model and was truncated."""
    generated: "Generated | None" = None
    """The continuation that a language model generated, and how; None if there is none."""
    pictured: Mapping[Site, Call] = field(default_factory=dict)
    """The calls of the tower of pictures, all tiles in one; `tower` is the trace of one tile"""

    @staticmethod
    def of_without(subject: Subject, example: Example, heads: Iterable[Head]) -> "Trace":
        """Run one example with some heads switched off, and compare with the whole model."""
        knockout = Knockout.of(subject, heads)
        intact = Trace.of(subject, example)
        said = None
        if subject.encoder.translates:
            said = _translation(subject, example), _translation(subject, example, knockout)
        return intact.compared(Trace.of(subject, intact.example, knockout), knockout, said)

    def compared(self, without: "Trace", knockout: Knockout, said: tuple[str, str] | None = None) -> "Trace":
        """The trace of the same text without some heads, with their effect on the output."""
        effect = Effect.between(self, without, head_names(self.subject, knockout.heads), said)
        return replace(without, effect=effect)

    @staticmethod
    def of(subject: Subject, example: Example, *taps: Tap, truncate: bool = False) -> "Trace":
        """Run one example, with further taps; `trace.is_cut` says whether the text was truncated."""
        encoded = subject.tokenize(translated(subject, example, truncate=truncate), truncate=truncate)
        if len(encoded.source) == 0:
            raise UserError("The text has no tokens for this model. Enter a text that is not empty.")
        return replace(Trace.over(subject, subject.collate([encoded]), *taps), is_cut=encoded.cut)

    @staticmethod
    def over(subject: Subject, batch: Batch, *taps: Tap) -> "Trace":
        """One pass over an encoded batch with a single text."""
        recorder: Recorder[Call] = Recorder(lambda call: call, (*subject.text_sites, *subject.tower_sites))
        with torch.no_grad(), subject.tapped(*taps, recorder):
            output = subject.run(batch, output_hidden_states=True, return_dict=True)
        return Trace.of_calls(subject, batch, recorder.records, output)

    @staticmethod
    def of_calls(
        subject: Subject,
        batch: Batch,
        calls: Mapping[Site, Call],
        output: ModelOutput,
        generated: "Generated | None" = None,
    ) -> "Trace":
        """The trace of these calls, of which those of a tower of pictures are kept apart."""
        own = {site: call for site, call in calls.items() if site in subject.text_sites}
        pictured = {site: call for site, call in calls.items() if site in subject.tower_sites}
        return Trace(subject, batch, own, output, generated=generated, pictured=pictured).finite()

    @property
    def tiles(self) -> int:
        """How many pictures or tiles the tower of pictures read."""
        return next((call.scores.shape[0] for call in self.pictured.values()), 0)

    @checked
    def tower(self, table: int = 0) -> "Trace":
        """What the tower of pictures read: a trace of its own, in which patches are the tokens.

        >>> trace.tower().overlay(2, 3, query=0).save("cls.png")       # doctest: +SKIP

        `table`: of a picture in several tiles, which. It has everything that attention alone gives (`head`, `data`,
        `plot`, `overlay`, `save` …), and no hidden states and no prediction.
        """
        if not self.pictured:
            raise UserError(f"{self.subject.name!r} read no picture here with a tower whose attention was captured.")
        if not 0 <= table < self.tiles:
            raise UserError(f"The tower read {self.tiles} pictures or tiles, counted from 0. Got {table}.")
        tokens = next(iter(self.pictured.values())).scores.shape[2]
        batch = tower_batch(self.example, self.batch.inputs, self.subject.model.config, tokens, table)
        calls = {site: call.of_text(table) for site, call in self.pictured.items()}
        return Trace(self.subject, batch.to(self.subject.device), calls, ModelOutput())

    def finite(self) -> "Trace":
        """The trace itself; an error if it contains NaN or infinity, drawn as an empty or a full cell."""
        _refuse_not_finite(self)
        return self

    @property
    def example(self) -> Example:
        return self.batch.examples[0]

    @property
    def parts(self) -> dict[str, list[int]]:
        """The positions of the tokens of each named part: speakers, parts of a prompt, generated tokens."""
        masks = self.batch.source.categories
        return {name: masks[name][0].nonzero()[:, 0].tolist() for name in masks if name not in CATEGORIES}

    @property
    def sites(self) -> tuple[Site, ...]:
        return tuple(self.calls)

    @property
    def stored(self) -> tuple[str, ...]:
        return PARTS

    def contexts(self) -> dict[Site, Tensor]:
        return {site: call.context.detach() for site, call in self.calls.items()}

    def __getitem__(self, name: str) -> Tensor:
        """`encoder.3.weights` is [head query key]; `encoder.weights`, or `weights` with one stack, has all layers.

        Of a layer that has lost heads the former has those that are left, the latter NaN for those that are gone.
        """
        sites, part = self.placed(name)
        if name.count(".") == 2:
            return self._part(sites[0], part)
        if part == "weights":
            require_room(self.subject, self.batch, 4, "keeping them", sites[0].name)
        total = max(self.subject.anatomy[site].total for site in sites)
        layers = 1 + max(site.layer for site in sites)
        whole: Tensor | None = None
        for site in sites:
            one = self._part(site, part)
            if whole is None:
                whole = one.new_full((layers, total, *one.shape[1:]), torch.nan)
            whole[site.layer, list(self.subject.anatomy[site].numbers)] = one
        assert whole is not None
        return whole

    def _part(self, site: Site, part: str) -> Tensor:
        """One part of one call, of all its heads; weights are not kept."""
        with torch.no_grad():
            return self.calls[site].block()[0] if part == "weights" else getattr(self.calls[site], part)[0]

    def __iter__(self) -> Iterator[Call]:
        return iter(self.calls.values())

    def tokens(self, stack: str | None = None) -> tuple[Tokens, Tokens]:
        """The query side and the key side of a stack."""
        chosen = self.known_stack(stack)
        site = next(site for site in self.calls if site.name == chosen)
        return self.batch.queries(site), self.batch.keys(site)

    def pieces(self, stack: str | None = None) -> tuple[str, ...]:
        """The tokens on the key side, as text.

        >>> subject.trace("the cat sat").pieces()[1:-1]
        ('the', 'cat', 'sat')
        """
        return self.tokens(stack)[1].pieces[0]

    def words(self, stack: str | None = None) -> tuple[str, ...]:
        """The words on the key side; each special token is a word of its own."""
        return self.tokens(stack)[1].units().labels

    @property
    def hidden_states(self) -> Float[Tensor, "layer query model"]:
        """The hidden states of the stack that makes the output, embeddings first."""
        return torch.stack(self.states)

    @property
    def states(self) -> list[Float[Tensor, "query model"]]:
        """The same states as a list."""
        name = "hidden_states" if self.batch.target is None else "decoder_hidden_states"
        states = getattr(self.output, name, None)
        if states is None:
            raise UserError(f"This trace of {self.subject.name!r} has attention alone, and no hidden states.")
        return [state[0] for state in states]

    @property
    def probabilities(self) -> dict[str, float] | None:
        """Class probabilities, if the subject is a classifier of texts: they add up to one, unless labels may go
        together. A classifier of tokens has none for the text, and a single output is a score, not a class."""
        labels, logits = self.subject.labels, getattr(self.output, "logits", None)
        if labels is None or logits is None or logits.dim() != 2 or len(labels) == 1:
            return None
        together = getattr(self.subject.model.config, "problem_type", None) == "multi_label_classification"
        shares = logits[0].float().sigmoid() if together else logits[0].float().softmax(-1)
        return dict(zip(labels, shares.tolist(), strict=True))

    @checked
    def data(self, part: str = "weights", *, stack: str | None = None, words: bool = False) -> xr.DataArray:
        """All layers of one stack as a labelled array; `words` only for weights.

        >>> weights = subject.trace("the cat sat").data("weights", words=True)
        >>> weights.dims
        ('layer', 'head', 'query', 'key')
        >>> weights.sel(layer=1, head=2)[:, weights.key_text == "cat"].shape
        (5, 1)
        """
        stack = self.known_stack(stack)
        if words and part != "weights":
            raise UserError(f"Only weights can be aggregated to words, not {part!r}.")
        tensor = self._between_words(stack) if words else self[f"{stack}.{part}"]
        rows, columns = self._labels(stack, words)
        last: dict[str, tuple[str, ...] | None] = {
            "query": {axes.QUERY: rows, axes.DIM: None},
            "context": {axes.QUERY: rows, axes.DIM: None},
            "key": {axes.KEY: columns, axes.DIM: None},
            "value": {axes.KEY: columns, axes.DIM: None},
            "weights": {axes.QUERY: rows, axes.KEY: columns},
        }[part]  # type: ignore[assignment]
        array = xr.DataArray(tensor.detach().cpu().float().numpy(), dims=(axes.LAYER, axes.HEAD, *last), name=part)
        array = array.assign_coords({axes.LAYER: range(1, array.sizes[axes.LAYER] + 1)})
        array = array.assign_coords({axes.HEAD: range(1, array.sizes[axes.HEAD] + 1)})
        for axis, labels in last.items():
            if labels is not None:
                array = array.assign_coords({axis: range(len(labels)), f"{axis}_text": (axis, list(labels))})
        return array

    @checked
    def head(self, layer: int, head: int, *, stack: str | None = None, words: bool = False) -> xr.DataArray:
        """[query key]: the weights of one head, without computing those of any other.

        >>> subject.trace("the cat sat").head(2, 3).sizes
        Frozen({'query': 5, 'key': 5})
        """
        stack = self.known_stack(stack)
        sites = [site for site in self.subject.sites if site.name == stack]
        heads = max(self.subject.anatomy[site].total for site in sites)
        layers = 1 + max(site.layer for site in sites)
        if not (1 <= layer <= layers and 1 <= head <= heads):
            raise UserError(
                f"There is no head {layer}.{head}: the {stack} of {self.subject.name} has {layers} layers of {heads} "
                "heads."
            )
        site = next((site for site in sites if site.layer == layer - 1), None)
        if site is None or head - 1 not in self.subject.anatomy[site].numbers:
            raise UserError(f"The head {layer}.{head} of the {stack} of {self.subject.name} was removed.")
        matrix = self.matrix(site, self.subject.anatomy[site].numbers.index(head - 1), words=words)
        rows, columns = self._labels(stack, words)
        coords = {axes.LAYER: layer, axes.HEAD: head, axes.QUERY: range(len(rows)), axes.KEY: range(len(columns))}
        texts = {"query_text": (axes.QUERY, list(rows)), "key_text": (axes.KEY, list(columns))}
        values = matrix.detach().cpu().float().numpy()
        return xr.DataArray(values, dims=(axes.QUERY, axes.KEY), coords={**coords, **texts}, name="weights")

    def matrix(self, site: Site, index: int, *, words: bool = False) -> Float[Tensor, "query key"]:
        """The weights of one head, by its place among those of the site; computed anew each time."""
        with torch.no_grad():
            weights = self.calls[site].block(heads=slice(index, index + 1))[0, 0]
            if not words:
                return weights
            queries, keys = (tokens.units().number for tokens in self.tokens(site.name))
            return to_words(weights, queries.to(weights.device), keys.to(weights.device))

    def _between_words(self, stack: str) -> Float[Tensor, "layer head query key"]:
        """All weights of a stack between words, a head at a time; NaN for heads that were removed."""
        require_room(self.subject, self.batch, 4, "keeping them", stack)
        sites = [site for site in self.calls if site.name == stack]
        rows, columns = self._labels(stack, words=True)
        shape = 1 + max(site.layer for site in sites), max(self.subject.anatomy[site].total for site in sites)
        whole: Tensor | None = None
        for site in sites:
            for index, number in enumerate(self.subject.anatomy[site].numbers):
                one = self.matrix(site, index, words=True)
                if whole is None:
                    whole = one.new_full((*shape, len(rows), len(columns)), torch.nan)
                whole[site.layer, number] = one
        assert whole is not None
        return whole

    def _labels(self, stack: str, words: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
        queries, keys = self.tokens(stack)
        return (queries.units().labels, keys.units().labels) if words else (queries.pieces[0], keys.pieces[0])

    @checked
    def by_part(self, measure: str = "weights", *, stack: str | None = None) -> xr.DataArray:
        """[layer head query_part key_part]: attention between the parts of the text, by weights or norms.

        >>> trace = language_model.trace(lo.prompt(document="the cat sat", question="it was"))
        >>> trace.by_part().key_part.values.tolist()[:2]
        ['document', 'question']
        """
        from lorgnette.subject.by_part import by_part

        return by_part(self, measure, stack=stack)

    def dataset(self, *, stack: str | None = None) -> xr.Dataset:
        """All parts of one stack together; vectors are named so that they do not clash with the axes."""
        named = {part: part if part in ("weights", "context") else f"{part}_vector" for part in PARTS}
        return xr.Dataset({name: self.data(part, stack=stack) for part, name in named.items()})

    @checked
    def plot(self, layer: int, head: int, *, stack: str | None = None, words: bool = True) -> "Plot":
        """One head's weights, queries in rows and keys in columns.

        >>> subject.trace("the cat sat").plot(2, 3).save("head.svg").name
        'head.svg'
        """
        return plot_of(self, layer, head, stack=stack, words=words)

    @checked
    def overlay(
        self,
        layer: int,
        head: int,
        *,
        query: int = -1,
        measure: str = "weights",
        stack: str | None = None,
        table: int = 0,
    ) -> "Overlay":
        """What one head reads of the picture: `trace.overlay(3, 7).save("cat.png")`, or .svg.

        `query`: the token that reads, counted from 0; −1 is the last. `measure`: "weights", or "norms" for what each
        patch contributes, ‖α f(x)‖. Patches that receive more than 0.3 of the head's weight, mean over all queries, are
        framed as sinks. `table`: of a picture in several tiles, which. `stack="vision"`: a head of the tower of
        pictures, in which patches read each other (`query=0` is [CLS], where there is one).
        """  # fmt: skip
        if stack is not None and stack not in self.stacks and stack in {site.name for site in self.pictured}:
            return self.tower(table).overlay(layer, head, query=query, measure=measure, stack=stack)
        return overlay_of(self, layer, head, query=query, measure=measure, stack=stack, table=table)

    @checked
    def save(self, path: str | os.PathLike[str]) -> Path:
        """All views of the text as one page that needs no network; `trace.show()` draws them in a notebook.

        >>> subject.trace("the cat sat").save("views.html").name
        'views.html'
        """
        return page_of(self, path)

    def __repr__(self) -> str:
        return f"Trace({self.subject.name!r}: {len(self.batch.source.pieces[0])} tokens, {len(self.calls)} sites)"


def require_room(
    subject: Subject, batch: Batch, each: int, what: str, stack: str | None = None, instead: str = ""
) -> None:
    """Refuse in advance if `each` bytes per weight of every head exceed the free memory."""
    sites = [site for site in (subject.text_sites if stack is None else subject.sites) if stack in (None, site.name)]
    pairs = [batch.queries(site).ids.shape[1] * batch.keys(site).ids.shape[1] for site in sites]
    count = sum(subject.anatomy[site].heads * pair for site, pair in zip(sites, pairs, strict=True))
    free = free_memory(subject.device)
    if free is not None and each * count > free:
        raise UserError(
            f"{batch.source.ids.shape[1]:,} tokens have {count:,} weights at all heads of {subject.name!r}: {what} "
            f"takes {each * count / 2**30:,.1f} GiB, and {free / 2**30:,.1f} GiB are free. {instead or INSTEAD}"
        )


GRADIENT = 16
"""Bytes that a weight takes while relevance is propagated: scores, weights and their gradients."""
INSTEAD = "Choose one head (--layer and --head, trace.head), or a lens (look), which keeps no weights."


def _refuse_not_finite(trace: Trace) -> None:
    for site, call in (*trace.calls.items(), *trace.pictured.items()):
        # The entropy is made of every weight, without keeping them. The context alone would not tell: torch's own
        # attention on a CPU gives zeros for a row of NaN.
        if not all(bool(torch.isfinite(part).all()) for part in (call.entropy(), call.context)):
            raise UserError(_not_finite(f"The attention of {trace.subject.name!r} at {site.name}.{site.layer + 1}"))
    if not all(bool(torch.isfinite(state).all()) for state in trace.states):
        raise UserError(_not_finite(f"The output of {trace.subject.name!r}"))


def _not_finite(what: str) -> str:
    return (
        f"{what} holds numbers that are not finite, so nothing behind it would be right. Try --dtype float32 (or "
        "bfloat16, whose range is wider than float16's), or a checkpoint from before training diverged."
    )


def translated(subject: Subject, example: Example, *, truncate: bool = False) -> Example:
    """The example with the model's own translation, where it translates and none is given."""
    if subject.encoder.translates and example.target is None:
        return replace(example, target=_translation(subject, example, truncate=truncate))
    return example


def _translation(subject: Subject, example: Example, *taps: Tap, truncate: bool = False) -> str:
    """The model's own greedy translation: a decoder needs an input."""
    batch = subject.encode([example], truncate=truncate)
    names = ("input_ids", "attention_mask")
    # Generous, and within what the decoder takes: translations are rarely longer than twice their source.
    longest = min(2 * batch.source.ids.shape[1] + 10, (subject.limit or 10**6) - 1)
    greedy = {"num_beams": 1, "do_sample": False, "max_length": None, "max_new_tokens": longest}
    with torch.no_grad(), subject.tapped(*taps):
        ids = subject.model.generate(**{name: batch.inputs[name] for name in names}, **greedy)
    return str(subject.tokenizer.decode(ids[0], skip_special_tokens=True))
