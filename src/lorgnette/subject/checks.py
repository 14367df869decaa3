"""Proof on a padded batch that what is seen of a model is what the model does."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lorgnette.attending import Call, Tap
from lorgnette.errors import CaptureError
from lorgnette.models.anatomy import AttentionSite
from lorgnette.statistics.entropy import entropy
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.example import Example

TEXTS = (
    ("The cat sat on the mat, and nobody minded.", "Le chat était assis sur le tapis."),
    ("Yes.", "Oui."),
    ("Two short sentences. They pad the batch differently, which is what this text is for.", "Deux phrases courtes."),
)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 6e-2, torch.float16: 1e-2}


@dataclass(frozen=True)
class Check:
    """One thing that must hold, whether it does, and the figure."""

    name: str
    ok: bool
    detail: str


class _Examiner(Tap):
    """Measures, at every site, how far the call is from what it claims to be."""

    def __init__(self, subject: Subject, batch: Batch) -> None:
        self.subject, self.batch = subject, batch
        self.sites: list[Any] = []
        self.rows = self.padding = self.mixing = self.streamed = self.written = 0.0
        self.waiting: dict[int, tuple[AttentionSite, Tensor]] = {}

    @contextmanager
    def outputs(self) -> Iterator[None]:
        """Compares what every output projection gives with what its heads and weights say."""
        modules = {id(s.output): s.output for s in self.subject.anatomy.sites if s.output and s.lack("output") is None}
        with ExitStack() as undo:
            for module in modules.values():
                undo.callback(module.register_forward_hook(self.write).remove)
            yield

    def write(self, module: nn.Module, arguments: object, output: Tensor) -> None:
        attention, context = self.waiting.pop(id(module), (None, None))
        if attention is None or context is None:
            return
        weight, bias = attention.output_weights()
        expected = context.transpose(1, 2).flatten(2) @ weight.flatten(0, 1)
        expected = expected if bias is None else expected + bias
        asked = self.batch.queries(attention.site).mask
        output = output.view(expected.shape)
        scale = float(output[asked].abs().max()) or 1.0
        self.written = max(self.written, _largest((expected - output)[asked] / scale))

    def see(self, call: Call) -> None:
        site = call.site
        self.sites.append(site)
        queries, keys = self.batch.queries(site).mask, self.batch.keys(site).mask
        swept, sink, context = call.entropy(), call.sink, call.context  # swept, before the matrix exists
        weights = call.weights
        asked = queries[:, None, :].expand(weights.shape[:3])
        self.rows = max(self.rows, _largest((weights.sum(-1) + sink - 1)[asked]))
        self.padding = max(self.padding, _largest(weights.masked_fill(keys[:, None, None, :], 0)[asked]))
        mixed = weights.to(call.value.dtype) @ call.value
        scale = float(mixed.abs().max()) or 1.0
        self.mixing = max(self.mixing, _largest((mixed - context)[asked] / scale))
        attention = self.subject.anatomy[site]
        self.waiting[id(attention.output)] = attention, context
        again = entropy(torch.cat([weights, sink[..., None].to(weights.dtype)], -1))
        self.streamed = max(self.streamed, _largest((again - swept)[asked]))


def check(subject: Subject) -> list[Check]:
    """Outputs unchanged, weights · value = context, heads · W_O = output, rows sum to one, padding gets nothing, every
    site seen once."""
    examples = [Example(f"check {n}", text, target=target) for n, (text, target) in enumerate(TEXTS)]
    batch = subject.encode(examples)
    examiner = _Examiner(subject, batch)
    with torch.no_grad():
        plain = _states(subject, batch)
        try:
            with subject.tapped(examiner), examiner.outputs():
                watched = _states(subject, batch)
        except CaptureError as error:
            return [Check("capture", False, str(error))]
        after = _states(subject, batch)
    mask = batch.target.mask if batch.target is not None else batch.source.mask
    if not bool(plain[mask].isfinite().all()):
        precision = str(subject.dtype).removeprefix("torch.")
        what = (
            f"without us the model gives NaN or infinity on a padded batch in {precision}: load it in another precision"
        )
        return [Check("the model's own outputs are numbers", False, what)]
    scale = float(plain[mask].abs().max()) or 1.0
    tolerance = TOLERANCE[subject.dtype]
    changed = _largest((plain - watched)[mask]) / scale
    restored = _largest((plain - after)[mask])
    wanted = sorted(subject.sites)
    # The statistics are float32 at least, whatever the model's precision.
    wide = 1e-9 if subject.dtype == torch.float64 else 1e-4
    return [
        Check("outputs unchanged", changed <= tolerance, f"largest relative difference {changed:.1e}"),
        Check(
            "weights · value = context",
            examiner.mixing <= tolerance,
            f"largest relative difference {examiner.mixing:.1e}",
        ),
        Check("heads · W_O = output", *_written(subject, examiner, tolerance)),
        Check("rows sum to one", examiner.rows <= wide, f"largest deviation {examiner.rows:.1e}"),
        Check("padding receives nothing", examiner.padding == 0, f"largest weight {examiner.padding:.1e}"),
        Check(
            "swept = matrix", examiner.streamed <= max(wide, 1e-9), f"entropy differs by {examiner.streamed:.1e} nats"
        ),
        Check(
            "every site seen once",
            sorted(examiner.sites) == wanted,
            f"{len(examiner.sites)} of {len(wanted)} sites",
        ),
        Check("model restored", restored == 0, f"difference afterwards {restored:.1e}"),
        Check("every token has a vector", *_vectors(subject)),
    ]


def _written(subject: Subject, examiner: _Examiner, tolerance: float) -> tuple[bool, str]:
    """Holds too where W_O is not known: whatever needs it refuses, and says so."""
    lacking = [site for site in subject.anatomy.sites if site.lack("output") is not None]
    if lacking:
        return True, f"not known, and refused where it is needed: {lacking[0].lack('output')}"
    return examiner.written <= tolerance, f"largest relative difference {examiner.written:.1e}"


def _vectors(subject: Subject) -> tuple[bool, str]:
    tokens, vectors = len(subject.tokenizer), getattr(subject.model.config, "vocab_size", None)
    return vectors is None or tokens <= vectors, f"{tokens} tokens, {vectors} vectors"


def _states(subject: Subject, batch: Batch) -> Tensor:
    """The last hidden state of the last stack: what all heads have acted on."""
    output = subject.run(batch, output_hidden_states=True, return_dict=True)
    states = output.decoder_hidden_states if batch.target is not None else output.hidden_states
    return states[-1]


def _largest(tensor: Tensor) -> float:
    """Infinity for what is not a number: Python's max would pass over NaN, and the check would hold."""
    return float(tensor.abs().nan_to_num(nan=torch.inf).max()) if tensor.numel() else 0.0
