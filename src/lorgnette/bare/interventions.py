"""Heads switched off, scaled, or given another pass's output, on a bare model; undone at the end of a context."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real

from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.attending import Call, Site, Tap
from lorgnette.errors import UserError, refuse_no_mapping, shown, whole_numbers
from lorgnette.models.loading import tensors_hash
from lorgnette.models.tapping import tapped
from lorgnette.subject import Subject, subject_of
from lorgnette.subject.knockout import Head, Knockout, head_names, heads_at
from lorgnette.subject.recorded import RecordedPass

Model = nn.Module | Subject


class Scaled(Tap):
    """Multiplies the output of some heads, before the output projection, by a factor each."""

    def __init__(self, factors: Mapping[Site, Mapping[int, float]]) -> None:
        self.factors = factors

    def context(
        self, call: Call, context: Float[Tensor, "batch head query dim"]
    ) -> Float[Tensor, "batch head query dim"]:
        if call.site not in self.factors:
            return context
        scale = context.new_ones(context.shape[1])
        for head, factor in self.factors[call.site].items():
            scale[head] = factor
        return context * scale[:, None, None]


class Patched(Tap):
    """Puts the output of some heads from another pass in the place of their own, at all or some query positions."""

    def __init__(
        self,
        contexts: Mapping[Site, Tensor],
        heads: Mapping[Site, Sequence[int]],
        positions: Sequence[int] | None = None,
    ) -> None:
        self.contexts, self.heads, self.positions = contexts, heads, positions

    def context(
        self, call: Call, context: Float[Tensor, "batch head query dim"]
    ) -> Float[Tensor, "batch head query dim"]:
        heads = self.heads.get(call.site, ())
        if not heads:
            return context
        other = self.contexts[call.site].to(context)
        if other.shape[1:] != context.shape[1:] or other.shape[0] not in (1, context.shape[0]):
            raise UserError(
                f"A pass of {other.shape[2]} positions cannot be patched into one of {context.shape[2]} ({call.site}): "
                "use two texts with the same number of tokens, or pad both to the same length."
            )
        far = [place for place in self.positions or () if not -context.shape[2] <= place < context.shape[2]]
        if far:
            raise UserError(
                f"There is no position {far[0]} to patch: the text has {context.shape[2]} positions, counted from 0."
            )
        context = context.clone()
        rows = slice(None) if self.positions is None else list(self.positions)
        for head in heads:
            context[:, head, rows] = other.expand_as(context)[:, head, rows]
        return context


def knockout(model: Model, heads: Iterable[Head]) -> Knockout:
    """The tap that switches heads off."""
    subject = subject_of(model)
    tap = Knockout(placed := heads_at(subject, heads))
    tap.change = f"without {', '.join(sorted(head_names(subject, placed)))}"
    return tap


def scaling(model: Model, factors: Mapping[Head, float]) -> Scaled:
    """The tap that scales heads."""
    placed: dict[Site, dict[int, float]] = {}
    subject, told = subject_of(model), dict[str, float]()
    refuse_no_mapping(factors, "factors", "{'1.2': 0.5}")
    for name, factor in factors.items():
        if isinstance(factor, bool) or not isinstance(factor, Real):
            raise UserError(f"The factor of a head must be a number. Got {shown(factor)} instead.")
        at = heads_at(subject, [name])
        told |= dict.fromkeys(head_names(subject, at), float(factor))
        for site, indices in at.items():
            placed.setdefault(site, {}).update(dict.fromkeys(indices, float(factor)))
    tap = Scaled(placed)
    tap.change = f"scaled {', '.join(f'{name} × {told[name]!r}' for name in sorted(told))}"
    return tap


def patching(
    model: Model, from_: RecordedPass, heads: Iterable[Head], positions: Sequence[int] | None = None
) -> Patched:
    """The tap that patches heads."""
    contexts = contexts_of(from_)
    subject = subject_of(model)
    chosen = heads_at(subject, heads)
    positions = None if positions is None else whole_numbers(positions, "positions")
    absent = [site for site in chosen if site not in contexts]
    if absent:
        raise UserError(f"The other pass has no context of {absent[0]}: store it (parts=('context', …), all layers).")
    tap = Patched(contexts, chosen, positions)
    where = "" if positions is None else f" at positions {', '.join(map(str, positions))}"
    origin = tensors_hash({str(site): contexts[site][:, list(at)] for site, at in chosen.items()})[:16]
    tap.change = f"patched {', '.join(sorted(head_names(subject, chosen)))}{where} from another pass ({origin})"
    return tap


@contextmanager
def without(model: Model, heads: Iterable[Head]) -> Iterator[None]:
    """Ablate heads: set their output to zero before the output projection (Michel et al. 2019).

        >>> with lo.without(model, ["1.2", (3, 4)]):
        ...     logits = model(**inputs).logits

    A head is `LAYER.HEAD`, or `STACK.LAYER.HEAD` if there are several stacks, counted from 1.

    What it does not tell you: what the model would do had it been trained without the head. Zero also takes away the
    constant part of the head's output, which could as well be a bias; the lenses `effects` and `importance` put the
    head's mean over a corpus in its place (docs/gauge.md).
    """
    with tapped(model, knockout(model, heads)):
        yield


@contextmanager
def scaled(model: Model, factors: Mapping[Head, float]) -> Iterator[None]:
    """Scale the output of each head, before the output projection, by a factor; 0 is `without`, 1 changes nothing.

    >>> with lo.scaled(model, {"1.2": 0.5, "3.4": 2.0}):
    ...     logits = model(**inputs).logits
    """
    with tapped(model, scaling(model, factors)):
        yield


@contextmanager
def patched(
    model: Model, from_: RecordedPass, heads: Iterable[Head], *, positions: Sequence[int] | None = None
) -> Iterator[None]:
    """Replace the output of heads by that of another forward pass (activation patching; Vig et al. 2020).

        >>> good, bad = (tokenizer(text, return_tensors="pt") for text in ("it was good", "it was not"))
        >>> other = lo.attention(model, parts=["context"], **bad)
        >>> with lo.patched(model, from_=other, heads=["1.2"], positions=[0]):
        ...     logits = model(**good).logits

    Both passes must have the same number of positions; `positions` restricts the patch to some queries.

    What it does not tell you: that the head alone carries what changed; later layers process the patch too.
    """
    with tapped(model, patching(model, from_, heads, positions)):
        yield


def contexts_of(source: RecordedPass) -> dict[Site, Tensor]:
    """The heads' outputs of a recorded pass, by site."""
    if not isinstance(source, RecordedPass):
        raise UserError(f"The other pass (from_) must be an Attention or a Trace. Got {shown(source)} instead.")
    return source.contexts()
