"""What a token is: which positions of a padded batch are real, and where the first and the last token of a text stand.

Padding may stand before a text, behind it, or inside. Whoever needs the first token, the last or the tenth asks here.
"""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from lorgnette.errors import UserError

Mask = Bool[Tensor, "batch token"]
SIDES = {"input_ids": "attention_mask", "decoder_input_ids": "decoder_attention_mask"}
"""The ids of each side of a model, with the mask that belongs to them."""


HIDDEN = -1e4
"""Additive masks hide a key with at most this number: −∞, the smallest number of a type, −1e9 …"""


def is_first(mask: Mask) -> Mask:
    """The first token of each text."""
    return mask & (mask.cumsum(-1) == 1)


def is_last(mask: Mask) -> Mask:
    """The last token of each text."""
    return mask & (mask.cumsum(-1) == mask.sum(-1, keepdim=True))


def positions_of(mask: Mask, number: Int[Tensor, " batch"] | int) -> Int[Tensor, " batch"]:
    """Where the token with this number stands in each text, counted from 0; 0 if the text has no such token."""
    wanted = torch.as_tensor(number, device=mask.device).expand(len(mask))[:, None] + 1
    return (mask & (mask.cumsum(-1) == wanted)).to(torch.uint8).argmax(-1)


def first_positions(mask: Mask) -> Int[Tensor, " batch"]:
    """Where each text begins; 0 for a text without tokens."""
    return positions_of(mask, 0)


def last_positions(mask: Mask) -> Int[Tensor, " batch"]:
    """Where each text ends; 0 for a text without tokens."""
    return positions_of(mask, mask.sum(-1) - 1)


def real_tokens(mask: Shaped[Tensor, "..."], shape: tuple[int, ...] | None, name: str = "attention_mask") -> Mask:
    """Which positions are tokens, from an attention mask as models take it; `shape` is that of the ids, if known.

    A mask of two dimensions says it itself. One of three or four ([batch query key], [batch head query key]; numbers
    that are added to scores are 0 where a key is visible) says it by the keys that no query sees.
    """
    if mask.dim() not in (2, 3, 4):
        raise UserError(f"{name} has {mask.dim()} dimensions: expected [batch token], 1 for a token and 0 for padding.")
    if mask.dim() > 2 and mask.shape[-2] not in (1, mask.shape[-1]):
        raise UserError(f"{name} is {_by(tuple(mask.shape))}: expected [batch token], or as many queries as keys.")
    real = _flags(mask, name) if mask.dim() == 2 else _seen_keys(mask, name)
    one = (1,) if mask.dim() > 2 else ()  # for all texts
    if shape is not None and (real.shape[1] != shape[1] or real.shape[0] not in (*one, shape[0])):
        raise UserError(
            f"{name} is for {_by(real.shape)} positions, and input_ids (or inputs_embeds) are {_by(shape)}."
        )
    real = real if shape is None else real.expand(*shape)
    empty = (~real.any(-1)).nonzero()[:, 0].tolist()
    if empty and real.shape[1]:
        raise UserError(f"{name} hides all tokens of text {empty[0] + 1}: expected 1 for a token and 0 for padding.")
    return real


def _flags(mask: Tensor, name: str) -> Bool[Tensor, "..."]:
    flags = mask != 0
    if mask.dtype != torch.bool and not bool((mask == flags.to(mask.dtype)).all()):
        raise UserError(f"{name} has values other than 0 and 1: expected 1 for a token and 0 for padding.")
    return flags


def _seen_keys(mask: Tensor, name: str) -> Mask:
    """The keys that some query sees."""
    if mask.is_floating_point() and mask.dim() == 4:
        if bool((mask > 0).any()):
            raise UserError(
                f"{name} of four dimensions is added to scores, so it is 0 where a key is visible and −∞ elsewhere; "
                "this one has numbers above 0. Pass a bool mask, or one of two dimensions."
            )
        visible = mask > HIDDEN
    else:
        visible = _flags(mask, name)
    visible = visible.any(1) if visible.dim() == 4 else visible  # [batch query key]
    sees_all = visible.all(-1)
    if bool((sees_all[:, :-1] & ~sees_all[:, 1:]).any()):
        # transformers lets a query that sees nothing see all keys, padding too: then no column is hidden everywhere
        raise UserError(
            f"{name} of {mask.dim()} dimensions does not tell which positions are padding: give lo.batch the mask of "
            "two dimensions that the tokenizer returned (the model may get the other)."
        )
    return visible.any(1)


def refuse_unmasked(inputs: Mapping[str, object], pad: int | None, end: int | Sequence[int] | None = None) -> None:
    """Padding that no mask names would be counted as text.

    Where the id that ends a text also pads it (GPT-2, Llama), one at an edge may be the end; two are padding.
    """
    ends = {end} if isinstance(end, int) else set(end or ())
    for name, mask in SIDES.items():
        ids = inputs.get(name)
        if not isinstance(ids, Tensor) or inputs.get(mask) is not None or ids.dim() != 2 or not ids.shape[1]:
            continue
        sides = [ids[:, -2:]] if name == "decoder_input_ids" else [ids[:, :2], ids[:, -2:]]  # it may begin with padding
        edges = [ids[:, -1]] if name == "decoder_input_ids" else [ids[:, 0], ids[:, -1]]
        if pad is not None and pad not in ends and any(bool((edge == pad).any()) for edge in edges):
            raise UserError(
                f"{name} contain padding (id {pad}) but there is no {mask}: pass the one that the tokenizer returned."
            )
        for twice in ends & {pad} if pad is not None else ends:
            if any(bool((side == twice).all(-1).any()) for side in sides if side.shape[1] == 2):
                raise UserError(
                    f"{name} contain padding (id {twice}, which also ends a text) but there is no {mask}: pass the one "
                    "that the tokenizer returned."
                )


def _by(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))
