"""Every way to run a model: padding on either side, none, no mask, one token, a cache."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import ModelOutput

from lorgnette.attending import Site
from lorgnette.types import Json

ALONE = "texts alone"
"""The way to run a model that sees pictures without any."""
Run = Callable[..., ModelOutput]
"""The model's forward, by keywords."""


def numbers_of(output: ModelOutput) -> list[Tensor]:
    """The floating-point tensors in a model's output; if its parts have outputs of their own, the last part first."""
    own = [one for one in output.values() if isinstance(one, Tensor) and one.is_floating_point()]
    parts = [] if own else [one for one in output.values() if isinstance(one, ModelOutput)]
    return own or [tensor for part in reversed(parts) for tensor in numbers_of(part)]


@dataclass(frozen=True)
class Step:
    """One forward pass: which of the real tokens are the queries of the last stack. The earlier ones are in a cache."""

    source: Bool[Tensor, "batch source"]
    target: Bool[Tensor, "batch target"] | None
    first: int
    output: ModelOutput

    @property
    def last_queries(self) -> Bool[Tensor, "batch query"]:
        """The real tokens among those that the last stack was given."""
        return (self.source if self.target is None else self.target)[:, self.first :]

    def queries(self, site: Site) -> Bool[Tensor, "batch query"]:
        if site.stack == "pooler":  # a single query attends to the text
            return self.source.any(-1, keepdim=True)
        return self.source if self.target is not None and site.stack == "encoder" else self.last_queries

    def keys(self, site: Site) -> Bool[Tensor, "batch key"]:
        """The real tokens among the keys, those in the cache included."""
        own = self.target is not None and site.stack != "encoder" and site.kind == "self"
        return self.target if own and self.target is not None else self.source

    @property
    def states(self) -> Tensor:
        """The last hidden state of the last stack, which all heads have acted on, if the model gives it.

        A model of pictures may give that of its tower of pictures (BLIP): what has a row for each token comes first.
        """
        named = ("last_hidden_state", "decoder_hidden_states", "hidden_states", "logits")
        given = [one for one in (getattr(self.output, name, None) for name in named) if one is not None]
        given = [one if isinstance(one, Tensor) else one[-1] for one in given]
        return next(
            (one for one in given if one.shape[:2] == self.last_queries.shape), [*given, *numbers_of(self.output)][0]
        )


@dataclass(frozen=True)
class Way:
    """A batch, and where it is cut into passes over a cache; `cuts` is empty for a single pass."""

    name: str
    inputs: Mapping[str, Tensor]
    source: Bool[Tensor, "batch source"]
    target: Bool[Tensor, "batch target"] | None = None
    cuts: tuple[int, ...] = ()

    def steps(self, run: Run) -> Iterator[Step]:
        """Runs the model, pass by pass."""
        if not self.cuts:
            yield Step(self.source, self.target, 0, run(**self.inputs))
            return
        cache: Json = {}
        name = "input_ids" if self.target is None else "decoder_input_ids"
        width = self.inputs[name].shape[1]
        for first, last in zip((0, *self.cuts), (*self.cuts, width), strict=True):
            given = {**self.inputs, name: self.inputs[name][:, first:last]}
            if self.target is None:
                shape = self.inputs[name].shape
                given = {
                    n: t[:, first:last] if n != "attention_mask" and t.shape[:2] == shape else t
                    for n, t in self.inputs.items()
                    # Pictures are in the cache, and so is where they stand.
                    if not first or (t.shape[:2] == shape and n != "mm_token_type_ids")
                }
                given["attention_mask"] = self.source[:, :last].long()
            else:
                given.pop("decoder_attention_mask", None)
            output = run(**{**given, **cache}, use_cache=True)
            if getattr(output, "past_key_values", None) is None:
                raise NoCache
            cache = {"past_key_values": output.past_key_values}
            if self.target is not None:
                cache |= {"encoder_outputs": BaseModelOutput(output.encoder_last_hidden_state), "input_ids": None}
            source, target = (self.source[:, :last], None) if self.target is None else (self.source, self.target)
            yield Step(source, target if target is None else target[:, :last], first, output)


class NoCache(Exception):
    """The model returns no cache for a later pass."""


def ways(inputs: Mapping[str, Tensor]) -> list[Way]:
    """All ways to run a model on these token ids, padded on the right; the batch as it is comes first."""
    ids, mask = inputs["input_ids"], inputs["attention_mask"].bool()
    target = inputs.get("decoder_attention_mask")
    if target is None and "decoder_input_ids" in inputs:
        target = torch.ones_like(inputs["decoder_input_ids"])
    target = None if target is None else target.bool()
    longest = int(mask.sum(-1).argmax())
    left = _rolled(inputs, ids.shape, mask)
    one = _cut(inputs, longest, int(mask[longest].sum()), None if target is None else int(target[longest].sum()))
    single = _cut(one, 0, 1, None if target is None else 1)
    last = one["input_ids" if target is None else "decoder_input_ids"].shape[1]
    found = [
        _way("padding on the right", inputs, target),
        _way("padding on the left", left, target),
        _way("one text without padding", one, target),
        _way("no mask", {name: tensor for name, tensor in one.items() if "attention_mask" not in name}, target),
        _way("one token", single, target),
    ]
    if last > 1:
        # Several tokens after the first, then one: a second part of a prompt, and a token that was generated.
        found.append(_way("a cache", one, target, cuts=tuple(sorted({max(1, last - 3), last - 1}))))
    if target is None and ids.shape[1] > 1:
        found.append(_way("a cache and padding on the left", left, target, cuts=(ids.shape[1] - 1,)))
    return found


def picture_ways(inputs: Mapping[str, Tensor], sees: Sequence[str]) -> list[Way]:
    """All ways to run a model on these texts and pictures; the batch as it is comes first. `sees`: the pictures."""
    ids, mask = inputs["input_ids"], inputs["attention_mask"].bool()
    target = torch.ones_like(inputs["decoder_input_ids"]).bool() if "decoder_input_ids" in inputs else None
    left = _rolled(inputs, ids.shape, mask)
    words = {name: tensor for name, tensor in inputs.items() if name.endswith(("input_ids", "attention_mask"))}
    found = [
        _way("pictures and texts", inputs, target),
        _way("pictures and padding on the left", left, target),
        _way(ALONE, words, target),
    ]
    if target is None and ids.shape[1] > 2:
        # A token after the pictures, as when a text is generated.
        found.append(_way("pictures in a cache", left, target, cuts=(ids.shape[1] - 1,)))
    return found


def sense_ways(inputs: Mapping[str, Tensor], tokens: int) -> list[Way]:
    """The ways to run a model of pictures or sound alone (all inputs, one input); its encoder makes so many tokens."""
    found = []
    for name, texts in (("all inputs", len(next(iter(inputs.values())))), ("one input", 1)):
        some = {name: tensor[:texts] for name, tensor in inputs.items()}
        decoder_ids = some.get("decoder_input_ids")
        target = None if decoder_ids is None else torch.ones_like(decoder_ids, dtype=torch.bool)
        device = next(iter(some.values())).device
        found.append(Way(name, some, torch.ones(texts, tokens, dtype=torch.bool, device=device), target))
    return found


def _way(name: str, inputs: Mapping[str, Tensor], target: Tensor | None, cuts: tuple[int, ...] = ()) -> Way:
    ids = inputs["input_ids"]
    source = inputs["attention_mask"].bool() if "attention_mask" in inputs else torch.ones_like(ids, dtype=torch.bool)
    if target is not None:
        decoder_ids = inputs["decoder_input_ids"]
        target = target if decoder_ids.shape == target.shape else torch.ones_like(decoder_ids, dtype=torch.bool)
    return Way(name, inputs, source, target, cuts)


def _rolled(inputs: Mapping[str, Tensor], shape: torch.Size, mask: Bool[Tensor, "batch token"]) -> dict[str, Tensor]:
    """The source with its padding on the left."""
    width = shape[1]
    shift: Int[Tensor, " batch"] = width - mask.sum(-1)
    places = (torch.arange(width, device=mask.device) - shift[:, None]) % width

    def rolled(tensor: Tensor) -> Tensor:
        wide = places.view(*shape, *[1] * (tensor.dim() - 2)).expand(*shape, *tensor.shape[2:])
        return tensor.gather(1, wide)

    return {
        name: rolled(tensor) if tensor.shape[:2] == shape and not name.startswith(("decoder", "pixel")) else tensor
        for name, tensor in inputs.items()
    }


def _cut(inputs: Mapping[str, Tensor], row: int, source: int, target: int | None) -> dict[str, Tensor]:
    """One text, cut to this many tokens."""
    return {
        name: tensor[row : row + 1, : target if name.startswith("decoder") else source]
        for name, tensor in inputs.items()
    }
