"""The residual stream of one pass as a sum: what embeddings, heads, feed-forward parts and biases write to it.

The pass is cut wherever a part writes to the residual stream. What is left between these writers and the queries, keys
and values of any head is the stream itself, norms with frozen statistics, linear maps and rotations: an affine map. So
a query is the sum of what the writers add to it, whatever the family, and the gradient of a number that is linear in
the query says what each writer adds to that number. One such gradient costs a product with the head's projection, and
no pass through the model.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.attending import Call, Site, Tap
from lorgnette.errors import CaptureError
from lorgnette.explaining.backward import run_options
from lorgnette.explaining.direct import POOLER, DirectPath, GraphStart, unknown_path
from lorgnette.explaining.inputs import word_tables
from lorgnette.models.anatomy import AttentionSite
from lorgnette.models.classifier.embeddings import WordEmbeddings
from lorgnette.models.linear import TOLERANCE, is_linear
from lorgnette.models.offloading import parameter
from lorgnette.models.switching import evaluating
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch, Tokens, TokenTexts
from lorgnette.types import ModelOutput

Slopes = tuple[Tensor | None, ...]
KINDS = ("tokens", "positions", "embeddings", "heads", "feed_forward", "biases")
"""What writes to the stream: "embeddings" is what enters the first layer beside the vectors of tokens and positions."""

MOST = 2**26
"""Numbers that the writers of one stream may take; more texts than fit are taken one after the other."""


@dataclass(frozen=True)
class Writer:
    """One part that writes to the residual stream."""

    kind: str
    stack: str
    layer: int | None = None
    """counted from 0"""
    head: int | None = None
    """its original number, counted from 0"""

    @property
    def name(self) -> str:
        if self.layer is None:
            return self.kind if self.kind == "biases" else f"{self.stack} {self.kind}"
        return f"{self.stack} {self.layer + 1}" + (" feed-forward" if self.head is None else f"-{self.head + 1}")

    def __str__(self) -> str:
        return self.name


def writers(subject: Subject) -> tuple[Writer, ...]:
    """All that can write to a stream of this model, biases last; the same for every text."""
    sites = [site for site in subject.text_attention if site.site.stack != POOLER]
    out: list[Writer] = []
    for stack in dict.fromkeys(site.site.stack for site in sites):
        out += [Writer(kind, stack) for kind in KINDS[:3]]
        own = [site for site in sites if site.site.stack == stack]
        for layer in dict.fromkeys(site.site.layer for site in sorted(own, key=lambda site: site.site.layer)):
            for site in own:
                if site.site.layer == layer:
                    out += [Writer("heads", site.site.name, layer, number) for number in site.numbers]
            out.append(Writer("feed_forward", stack, layer))
    return (*out, Writer("biases", ""))


def streams(subject: Subject, batch: Batch) -> "Iterator[tuple[slice, ResidualStream]]":
    """The streams of a batch, so many texts at a time that what all writers write fits into memory."""
    for rows, some in in_memory(subject, batch):
        yield rows, ResidualStream(subject, some)


def in_memory(subject: Subject, batch: Batch) -> Iterator[tuple[slice, Batch]]:
    """So many texts of a batch at a time that what all writers write fits into memory."""
    tokens = max(side.ids.shape[1] for side in (batch.source, batch.target) if side is not None)
    width = int(subject.model.get_input_embeddings().weight.shape[-1])
    together = max(1, MOST // max(1, len(writers(subject)) * tokens * width))
    for start in range(0, len(batch), together):
        rows = slice(start, min(start + together, len(batch)))
        yield rows, batch if together >= len(batch) else _texts(batch, rows)


def _texts(batch: Batch, rows: slice) -> Batch:
    def chosen(side: Tokens) -> Tokens:
        text = side.text
        some = TokenTexts(lambda: text.word[rows], lambda: text.pieces[rows], lambda: text.words[rows])
        return side.changed(lambda tensor: tensor[rows]).replaced(text=some)

    inputs = {name: tensor[rows] for name, tensor in batch.inputs.items()}
    target = None if batch.target is None else chosen(batch.target)
    return replace(batch, inputs=inputs, source=chosen(batch.source), target=target, examples=batch.examples[rows])


class ResidualStream(DirectPath):
    """One pass, cut where parts write to the residual stream.

        >>> stream = ResidualStream(subject, batch)
        >>> call = stream.calls[subject.sites[1]]
        >>> stream.parts(call.query, torch.ones_like(call.query)).shape     # [text writer]

    `calls` are the attention calls, whose queries, keys and values are in the graph. A model whose heads' outputs are
    not the sum that they are known to be is refused by name.
    """

    def __init__(self, subject: Subject, batch: Batch) -> None:
        super().__init__(subject)
        for site in self.sites:
            if site.output is not None:
                site.require("output", gated=True)
        self.texts: int = len(batch)
        self.writers: tuple[Writer, ...] = writers(subject)
        self.place: dict[Writer, int] = {writer: number for number, writer in enumerate(self.writers)}
        self.calls: dict[Site, Call] = {}
        self.pieces: list[Amount] = []
        self.pending: list[tuple[str, Tensor]] = []
        self.before: int = 0
        self.given: dict[Site, Tensor] = {}
        self.outputs: dict[Site, Tensor] = {}
        self.attention: dict[Site, AttentionSite] = {site.site: site for site in self.sites}
        with torch.enable_grad(), evaluating(subject.model), self.cut(), subject.tapped(self.tap()):
            self.finish(subject.run(batch, **run_options(subject)))
        self.refuse_uncut()
        self._keep_feed_forward()

    def finish(self, outputs: ModelOutput) -> None:
        """Take the output of the pass, inside the graph."""

    def tap(self) -> Tap:
        return _Reading(self)

    def begin(self, states: Tensor) -> Tensor:
        """What enters the first layer of a stack, and the vectors of tokens and positions that it is made of."""
        stack = self._stack()
        if not states.requires_grad or not self.pending:
            states = states.detach().requires_grad_()
            self.pending = []
        for kind, leaf in self.pending:
            self.pieces.append(Amount((Writer(kind, stack),), leaf, leaf.detach()[None]))
        if self.pending:
            del self.biased[self.before :]  # what enters the layer has them in it
        self.pieces.append(Amount((Writer("embeddings", stack),), states, states.detach()[None]))
        self.pending = []
        return states

    def _stack(self) -> str:
        layer = self.layer[-1]
        return next(site.site.stack for site in self.sites if site.layer is layer)

    def cut_writes(self, undo: ExitStack) -> None:
        """Cut at vectors of tokens and positions, and behind the output maps of attention and feed-forward parts."""
        outputs = {id(site.output) for site in self.sites if site.output is not None}
        inside = {id(part) for site in self.sites for part in site.layer.modules()}
        tables = _tables(self.subject)
        words = {id(table) for table in tables}
        own = None  # positions of patches are part of the picture that enters the language model
        if self.subject.anatomy.sees:
            stacks = (stack.module for stack in self.subject.anatomy.stacks if stack.name in self.stacks)
            own = {id(part) for stack in stacks for part in stack.modules()}
        self.width = int(self.subject.model.get_input_embeddings().weight.shape[-1])
        for name, module in self.subject.model.named_modules():
            if id(module) in outputs:
                undo.callback(module.register_forward_hook(self._wrote_heads).remove)
            elif id(module) in inside and is_linear(module):
                undo.callback(module.register_forward_hook(self._wrote_feed_forward).remove)
            elif id(module) not in inside and isinstance(module, nn.Embedding):
                positional = _positional(name) and (own is None or id(module) in own)
                kind = "tokens" if id(module) in words else "positions" if positional else None
                if kind is not None:
                    undo.callback(module.register_forward_hook(_Begun(self, kind)).remove)

    def _wrote_heads(self, module: nn.Module, arguments: object, output: Tensor) -> Tensor:
        leaf = output.detach().requires_grad_()
        self.given[self.last], self.outputs[self.last] = leaf, output
        return leaf.clone()  # a model may add to it in place

    def _wrote_feed_forward(self, module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        """Where the input is the end of a feed-forward part's non-linearity, the path is cut behind the map instead."""
        at = next((n for n, (_, leaf) in enumerate(self.feed_forward) if arguments and leaf is arguments[0]), None)
        if at is None or self.attending:
            return None
        leaf = output.detach().requires_grad_()
        bias = parameter(module, "bias")
        amount = leaf.detach() if bias is None else leaf.detach() - bias.detach()
        site = self.feed_forward[at][0]
        self.pieces.append(Amount((Writer("feed_forward", site.stack, site.layer),), leaf, amount[None]))
        self.feed_forward[at] = (site, leaf)
        return leaf.clone()

    def _keep_feed_forward(self) -> None:
        """The feed-forward parts that were cut at their non-linearity, and the heads."""
        known = {id(piece.leaf) for piece in self.pieces}
        for site, leaf in self.feed_forward:
            if id(leaf) not in known:
                self._refuse_some_tokens(site, leaf)
                self.pieces.append(Amount((Writer("feed_forward", site.stack, site.layer),), leaf, leaf.detach()[None]))
        for site, context in self.heads.items():
            if site.stack != POOLER:
                self.pieces.append(self._heads(site, context))

    def _refuse_some_tokens(self, site: Site, leaf: Tensor) -> None:
        """Experts that see some of the tokens are no part of every token's stream."""
        rows = self.texts * self.heads[Site(site.stack, "self", site.layer)].shape[2]
        if leaf.numel() != rows * leaf.shape[-1]:
            raise unknown_path(self.subject, f"the feed-forward part of {site} gives each of its experts some tokens")

    def _heads(self, site: Site, context: Float[Tensor, "batch head query dim"]) -> "Amount":
        attention = self.attention[site]
        own = tuple(Writer("heads", site.name, site.layer, number) for number in attention.numbers)
        gate = self.calls[site].gate
        z = (context if gate is None else context * gate.to(context)).detach().movedim(1, 0)
        if attention.output is None or site not in self.given:  # each head alone, where they are concatenated
            apart = torch.zeros_like(context)[None].repeat(len(own), 1, 1, 1, 1)
            for head in range(len(own)):
                apart[head, :, head] = z[head]
            return Amount(own, context, apart)
        leaf = self.given[site]
        weight, bias = attention.output_weights(gated=True)
        written = torch.stack([one @ w.to(one) for one, w in zip(z, weight.detach(), strict=True)])
        missed = written.sum(0) - leaf.detach().reshape(written.shape[1:])
        missed = missed if bias is None else missed + bias.detach().to(missed)
        self._refuse(missed.abs().amax(), leaf.detach().abs().amax(), f"the heads of {site} do not sum to their output")
        return Amount(own, leaf, written.reshape(len(own), *leaf.shape))

    def parts(self, tensor: Tensor, rate: Tensor) -> Float[Tensor, "text writer"]:
        """What each writer adds to ⟨tensor, rate⟩ of each text: the tensor's parts, each times the rate."""
        return self.parts_along(self.slopes(tensor, rate), tensor)

    def slopes(self, tensor: Tensor, rate: Tensor) -> Slopes:
        """The gradient of ⟨tensor, rate⟩ where the graph begins: at each of `pieces`, then at what has a bias."""
        return torch.autograd.grad(tensor, self._tensors, rate, retain_graph=True, allow_unused=True)

    def parts_along(self, slopes: Slopes, tensor: Tensor) -> Float[Tensor, "text writer"]:
        """The contribution of each writer along these gradients."""
        wide = torch.promote_types(tensor.dtype, torch.float32)
        out = torch.zeros(self.texts, len(self.writers), dtype=wide, device=tensor.device)
        shared: dict[tuple[int, int], Tensor] = {}
        behind = len(self.pieces)
        for piece, slope in zip(self.pieces, slopes[:behind], strict=True):
            if slope is not None:
                flat = slope.reshape(self.texts, -1, 1).to(wide)
                amount = piece.amount.reshape(len(piece.writers), self.texts, -1).movedim(0, 1).to(wide)
                out[:, [self.place[writer] for writer in piece.writers]] += (amount @ flat)[..., 0]
        for (_, bias), slope in zip(self.biased, slopes[behind:], strict=True):
            if slope is not None:
                key = (slope.data_ptr(), slope.shape[-1])
                if key not in shared:
                    shared[key] = slope.reshape(self.texts, -1, slope.shape[-1]).to(wide).sum(1)
                out[:, -1] += shared[key] @ bias.to(wide)
        for stack in self._beginnings:  # what enters the first layer has the vectors of tokens and positions in it
            whole, *parts = (self.place[Writer(kind, stack)] for kind in ("embeddings", *KINDS[:2]))
            out[:, whole] -= out[:, parts].sum(-1)
        return out

    @cached_property
    def _tensors(self) -> list[Tensor]:
        return [*(piece.leaf for piece in self.pieces), *(output for output, _ in self.biased)]

    @cached_property
    def _beginnings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(writer.stack for writer in self.writers if writer.kind == "embeddings"))

    def refuse_missing(self, found: Tensor, expected: Tensor, size: Tensor, name: str) -> None:
        """Refuse a model whose parts do not sum to the number that they are parts of, to the rounding of its size."""
        self._refuse((found - expected).abs(), size, f"the parts of {name} do not sum to it")

    def _refuse(self, missed: Tensor, size: Tensor, why: str) -> None:
        tolerance = max(TOLERANCE[self.subject.dtype], TOLERANCE[torch.float32])
        if bool((missed > tolerance * size.clamp(min=torch.finfo(size.dtype).tiny)).any()):
            share = float((missed / size.clamp(min=torch.finfo(size.dtype).tiny)).max())
            raise CaptureError(
                f"What parts of {self.subject.name!r} ({type(self.subject.model).__name__}) write to the residual "
                f"stream is not known: {why}, but miss it by {share:.1e} of its size."
            )


@dataclass(frozen=True)
class Amount:
    """Where the graph begins, and how much of it each writer gives."""

    writers: tuple[Writer, ...]
    leaf: Tensor
    amount: Float[Tensor, "writer *leaf"]


def _tables(subject: Subject) -> list[nn.Module]:
    own: list[nn.Module] = [module.words for module in subject.model.modules() if isinstance(module, WordEmbeddings)]
    return own or word_tables(subject)


def _positional(name: str) -> bool:
    last = name.rpartition(".")[2]
    return "pos" in last or last == "wpe"


class _Begun:
    """A hook behind a table of vectors: they begin the graph."""

    def __init__(self, stream: ResidualStream, kind: str) -> None:
        self.stream, self.kind = stream, kind

    def __call__(self, module: nn.Module, arguments: object, output: Tensor) -> Tensor | None:
        if self.stream.layer or output.shape[-1] != self.stream.width:
            return None  # RoFormer's positions rotate queries and keys
        texts = output.detach() if output.dim() > 2 else output.detach()[None]
        leaf = texts.expand(self.stream.texts, *texts.shape[1:]).clone().requires_grad_()  # one of each text
        if not self.stream.pending:
            self.stream.before = len(self.stream.biased)
        self.stream.pending.append((self.kind, leaf))
        return leaf.clone()  # a model may add to it in place


class _Reading(GraphStart):
    """Heads' outputs begin the graph; their queries, keys and values stay in it."""

    path: ResidualStream

    def context(self, call: Call, context: Tensor) -> Tensor:
        if call.site.stack in self.path.stacks:
            self.path.calls[call.site] = call
        return super().context(call, context)
