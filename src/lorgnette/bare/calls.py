"""`lo.calls`: queries and keys that were captured elsewhere, as the attention calls that lenses read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from lorgnette.attending import Call, Site
from lorgnette.attending.attend import scores_of
from lorgnette.attending.band import Band, BandMask
from lorgnette.bare.batch import batch as batch_of
from lorgnette.bare.captured import Calls, Elsewhere
from lorgnette.bare.layer_tensors import (
    Captured,
    Optional,
    PerLayer,
    biases_of,
    by_layer,
    mask_of,
    numbers_of,
    shape_of,
    sinks_of,
)
from lorgnette.errors import UserError, flag, shown
from lorgnette.models.anatomy import PARTS, Anatomy, AttentionSite, LayerStack
from lorgnette.subject import Subject, refuse_tokenizer, subject_of
from lorgnette.texts.batch import Batch

_NOWHERE = "its queries and keys were captured elsewhere, without the model's weights (pass model=… to lo.calls)"


def calls(
    query: Captured,
    key: Captured,
    value: Captured | None = None,
    *,
    causal: bool,
    mask: Tensor | np.ndarray | None = None,
    scale: PerLayer = None,
    window: PerLayer = None,
    softcap: PerLayer = None,
    sinks: Optional = None,
    bias: Optional = None,
    residual: Captured | None = None,
    stack: Literal["encoder", "decoder", "cross"] | None = None,
    layers: Sequence[int] | None = None,
    batch: Batch | None = None,
    model: nn.Module | Subject | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    name: str = "captured",
) -> Calls:
    """Queries and keys that were captured elsewhere, as attention calls for lenses; the n×n matrix is never made.

        >>> query, key = torch.rand(2, 1, 4, 9, 8), torch.rand(2, 1, 2, 9, 8)   # [layer text head token dim]
        >>> calls = lo.calls(query, key, causal=True, window=4)
        >>> [call.entropy().shape for call in calls]        # [text head query]
        [torch.Size([1, 4, 9]), torch.Size([1, 4, 9])]
        >>> calls.look("weights,distances")["weights"].data["entropy"].dims
        ('stack', 'layer', 'head')

    `query`, `key` and `value` are [text head token dim] as they enter the attention, after rotary positions: of one
    layer, stacked over layers, in a list, or by number of the layer, from 1 ({3: …}; or name them by `layers`). Query
    heads share fewer key heads in groups, in order. Fewer queries than keys are the last positions (a cache has those
    before).

    What the model does beside the product is given with them. `causal`: a row sees no later key. `mask`: [text token],
    1 for a token and 0 for padding, or [text 1 query key], True where a key is visible (floats are added to scores);
    without it, the padding of `batch`. `scale`: None is d^−½. `window`: the config's `sliding_window`, with which a
    causal row sees that many keys, its own included, and any other row those at most so far away. `softcap` c:
    c·tanh(s/c), before the mask. `sinks` [head]: scores of learnt sinks. `bias`: added to scores, broadcast to
    [text head query key]. Those but the mask may differ by layer: a list, or by number.

    `batch` (`lo.batch(inputs, tokenizer)`) says what the tokens are. With `model`, whose weights are those of the
    capture, and `value`, W_O is known, as norms need it; `residual` [text token model] is the state that the heads'
    output is added to. A lens that runs the model (ablation, gradients, hidden states) is refused.

    What it does not tell you: whether these are the queries and keys that you think of. A wrong scale, a forgotten
    window, or queries from before the rotary positions give rows that sum to one all the same.
    """
    flag(causal, "causal")
    refuse_tokenizer(tokenizer, "lo.calls")
    queries = by_layer(query, "query", layers)
    keys = by_layer(key, "key", list(queries))
    values = None if value is None else by_layer(value, "value", list(queries))
    states = None if residual is None else by_layer(residual, "residual", list(queries), "[text token model]")
    numbers = {
        what: numbers_of(given, what, queries)
        for what, given in (("scale", scale), ("window", window), ("softcap", softcap))
    }
    learnt, added = sinks_of(sinks, queries), biases_of(bias, queries, keys)
    site = _site(stack, causal)
    first = next(iter(queries))
    if batch is not None and not isinstance(batch, Batch):
        raise UserError(f"batch must be a Batch: lo.batch(inputs, tokenizer). Got {shown(batch)} instead.")
    if mask is None and batch is not None:
        mask = batch.keys(site).mask
    seen = None if mask is None else mask_of(mask, queries[first], keys[first])
    records: dict[Site, Call] = {}
    for number in queries:
        layer = _CapturedLayer(
            replace(site, layer=number - 1),
            queries[number],
            keys[number],
            None if values is None else values[number],
            None if states is None else states[number],
            numbers["scale"][number],
            numbers["window"][number],
            numbers["softcap"][number],
            learnt[number],
            added[number],
        )
        layer.refuse_shapes(seen)
        records[layer.site] = layer.call(seen, causal=causal)
    subject = None if model is None else subject_of(model)
    anatomy = _anatomy(records) if subject is None else _anatomy_in(subject, records)
    if tokenizer is None and subject is not None and subject.has_tokenizer:
        tokenizer = subject.tokenizer
    elsewhere = Elsewhere(anatomy, queries[first], name, tokenizer)
    return Calls(elsewhere, records, _nameless(records, seen) if batch is None else batch)


def _site(stack: object, causal: bool) -> Site:
    """The first site of the stack."""
    where = ("decoder" if causal else "encoder") if stack is None else stack
    if where not in ("encoder", "decoder", "cross"):
        raise UserError(f"stack must be 'encoder', 'decoder' or 'cross'. Got {shown(stack)} instead.")
    return Site("decoder", "cross", 0) if where == "cross" else Site(str(where), "self", 0)


@dataclass(frozen=True)
class _CapturedLayer:
    """The tensors that enter the attention of one layer."""

    site: Site
    query: Float[Tensor, "text head query dim"]
    key: Float[Tensor, "text group key dim"]
    value: Float[Tensor, "text group key value_dim"] | None
    residual: Float[Tensor, "text query model"] | None
    scale: float | None
    window: float | None
    softcap: float | None
    sink: Float[Tensor, " head"] | None
    bias: Float[Tensor, "..."] | None

    def call(self, mask: Tensor | None, *, causal: bool) -> Call:
        """The call; a mask of tokens and the band take no memory, a mask of pairs is there already."""
        texts, _, queries, _ = self.query.shape
        keys = self.key.shape[2]
        reach = None if self.window is None else int(self.window) - 1 if causal else int(self.window)
        band = Band(causal, reach)
        seen: Tensor
        if mask is None or mask.dim() == 2:
            padding = None if mask is None or bool(mask.all()) else mask[:, None, None]
            seen = BandMask((texts, 1, queries, keys), padding, band, self.query.device)
        else:
            hidden = False if mask.dtype == torch.bool else torch.finfo(mask.dtype).min
            seen = mask.masked_fill(~band.keys(slice(0, queries), queries, keys, mask.device), hidden)
        scores, _ = scores_of(
            self.query, self.key, self.key, seen, self.scale, is_causal=None, bias=self.bias, softcap=self.softcap
        )
        return Call(self.site, replace(scores, sink=self.sink), self.value, residual=self.residual)

    def refuse_shapes(self, mask: Tensor | None) -> None:
        """Refuse tensors of one layer that cannot belong together."""
        query, key, number = self.query, self.key, self.site.layer + 1
        texts, heads, queries, width = query.shape
        alike = key.shape[0] == texts and key.shape[3] == width and heads % key.shape[1] == 0
        if not alike or (queries > key.shape[2] and self.site.kind == "self"):
            raise UserError(
                f"query {shape_of(query.shape)} and key {shape_of(key.shape)} of layer {number} do not belong together:"
                " expected [text head token dim] of the same texts and head size, as many or more keys, and a number "
                "of key heads that divides that of query heads."
            )
        if self.value is not None and self.value.shape[:3] != key.shape[:3]:
            raise UserError(
                f"value {shape_of(self.value.shape)} of layer {number} does not fit its key {shape_of(key.shape)}."
            )
        if self.residual is not None and self.residual.shape[:2] != (texts, queries):
            raise UserError(
                f"residual {shape_of(self.residual.shape)} of layer {number} must be [text token model], of {texts} "
                f"texts with {queries} tokens."
            )
        if mask is not None and (mask.shape[-1] != key.shape[2] or len(mask) not in (1, texts)):
            raise UserError(
                f"The mask is for {shape_of(mask.shape)} and layer {number} has {texts} texts with {key.shape[2]} keys."
            )
        if self.window is not None and self.window != int(self.window):
            raise UserError(f"window must be a whole number. Got {self.window} instead.")
        for what, other in (("key", key), ("value", self.value), ("residual", self.residual)):
            if other is not None and (other.dtype, other.device) != (query.dtype, query.device):
                raise UserError(
                    f"query of layer {number} is {query.dtype} on {query.device}, and {what} {other.dtype} on "
                    f"{other.device}: expected one type and one device."
                )


def _anatomy(records: Mapping[Site, Call]) -> Anatomy:
    """The places of these calls; no projection is known."""
    here, nothing = nn.Module(), dict.fromkeys(PARTS, _NOWHERE)
    sites = tuple(
        AttentionSite(
            site, here, here, None, None, None, None, None, None, "none",
            heads := call.scores.shape[1], call.scores.key.shape[1], tuple(range(heads)), heads, nothing,
        )
        for site, call in records.items()
    )  # fmt: skip
    return Anatomy("captured", (LayerStack(sites[0].site.stack, here, sites),))


def _anatomy_in(subject: Subject, records: Mapping[Site, Call]) -> Anatomy:
    """The places of these calls in a model."""
    sites = []
    for site, call in records.items():
        if site not in subject.sites:
            raise UserError(f"{subject.name!r} has no {site}. It has {', '.join(map(str, subject.sites))}.")
        place = subject.anatomy[site]
        has, given = (place.heads, place.groups), (call.scores.shape[1], call.scores.key.shape[1])
        if has != given:
            raise UserError(
                f"The {site} of {subject.name!r} has {has[0]} heads, with {has[1]} of keys; given were {given[0]} and "
                f"{given[1]}. Pass the model that they were captured from."
            )
        sites.append(place)
    stack = next(each for each in subject.anatomy.stacks if sites[0] in each.sites)
    return Anatomy(subject.anatomy.family, (LayerStack(stack.name, stack.module, tuple(sites)),))


def _nameless(records: Mapping[Site, Call], mask: Tensor | None) -> Batch | None:
    """A batch of which nothing is known but where padding is; None where that is not known."""
    site, call = next(iter(records.items()))
    texts, _, queries, keys = call.scores.shape
    if site.kind == "cross" or queries != keys or (mask is not None and mask.dim() != 2):
        return None
    real = torch.ones(texts, keys, dtype=torch.bool, device=call.query.device) if mask is None else mask
    return batch_of({"attention_mask": real.long()})
