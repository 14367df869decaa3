"""`lo.batch(inputs)`: a Batch from tensors, with or without a tokenizer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from lorgnette.errors import UserError
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.texts.example import Example
from lorgnette.texts.parts import refuse_name
from lorgnette.texts.token_kinds import TokenKinds


def batch(
    inputs: Mapping[str, Tensor],
    tokenizer: PreTrainedTokenizerBase | None = None,
    words: Sequence[Sequence[str]] | None = None,
    *,
    word_ids: Int[Tensor, "batch token"] | None = None,
    config: PreTrainedConfig | None = None,
    tokens: int | None = None,
    parts: Mapping[str, Sequence[int]] | None = None,
    labels: Sequence[int] | None = None,
    ids: Sequence[str] | None = None,
) -> Batch:
    """A batch for lenses from the output of a tokenizer (or of an image or audio processor).

        >>> inputs = tokenizer(texts, padding=True, return_tensors="pt")
        >>> lo.batch(inputs, tokenizer).lengths             # without padding
        tensor([ 9, 11])

    Without a tokenizer, no token is special or punctuation: the only categories are `other`, `first` and `last`.
    `word_ids` is the word of each token (−1: none), `words` are the words; without them, every token is a word.
    `tokens` is the number of positions if the inputs do not determine it (patches of an image, audio frames). `parts`
    names groups of positions (from 0), such as registers or patches, as categories for lenses with `parts=`. Without
    an attention mask, a batch has no padding.
    """
    inputs = dict(inputs)
    pad = getattr(tokenizer if tokenizer is not None else config, "pad_token_id", None)
    refuse_unmasked(inputs, pad, getattr(tokenizer if tokenizer is not None else config, "eos_token_id", None))
    source = _side(inputs, "input_ids", "attention_mask", tokenizer, config, words, word_ids, tokens)
    if parts:
        source = replace(source, categories={**source.categories, **_parts(source.mask, parts)})
    target = None
    if "decoder_input_ids" in inputs:
        target = _side(inputs, "decoder_input_ids", "decoder_attention_mask", tokenizer, config, None, None, None)
    count = len(source.mask)
    names = [str(name) for name in ids] if ids is not None else [f"text {number + 1}" for number in range(count)]
    if len(names) != count:
        raise UserError(f"There are {count} texts and {len(names)} ids.")
    given = [None] * count if labels is None else [int(label) for label in labels]
    examples = tuple(
        Example(name, " ".join(text), label=label) for name, text, label in zip(names, source.words, given, strict=True)
    )
    return Batch(inputs, source, target, examples)


def _parts(mask: Tensor, parts: Mapping[str, Sequence[int]]) -> dict[str, Bool[Tensor, "batch token"]]:
    masks = {}
    for name, places in parts.items():
        refuse_name(name)
        if not all(0 <= place < mask.shape[1] for place in places):
            raise UserError(
                f"The part {name!r} names positions that do not exist: positions are 0 to {mask.shape[1] - 1}."
            )
        masks[name] = torch.zeros_like(mask)
        masks[name][:, list(places)] = mask[:, list(places)]
    return masks


def refuse_unmasked(inputs: Mapping[str, Tensor], pad: int | None, end: int | None = None) -> None:
    """Padding that no mask names would be counted as text."""
    for name, mask in (("input_ids", "attention_mask"), ("decoder_input_ids", "decoder_attention_mask")):
        ids = inputs.get(name)
        if ids is None or mask in inputs or pad is None or pad == end or ids.dim() != 2 or not ids.shape[1]:
            continue
        edges = ids[:, -1:] if name == "decoder_input_ids" else ids[:, [0, -1]]  # a decoder may begin with padding
        if bool((edges == pad).any()):
            raise UserError(
                f"{name} contain padding (id {pad}) but there is no {mask}: pass the one that the tokenizer returned."
            )


def _side(
    inputs: dict[str, Tensor], name: str, mask_name: str, tokenizer: PreTrainedTokenizerBase | None,
    config: PreTrainedConfig | None,
    words: Sequence[Sequence[str]] | None, word_ids: Tensor | None, tokens: int | None,
) -> Tokens:  # fmt: skip
    mask = _mask(inputs, name, mask_name, tokens)
    ids = inputs[name] if name in inputs else torch.full(mask.shape, -1, device=mask.device)
    special = _special(inputs, ids, mask, tokenizer)
    owner = word_ids if word_ids is not None else _each_its_own(mask, special)
    pieces = _pieces(ids, mask, tokenizer)
    named = tuple(map(tuple, words)) if words is not None else _as_words(pieces, owner)
    return Tokens(
        ids, mask, special, owner.to(ids.device), pieces, named, _kinds(ids, mask, special, tokenizer, config)
    )


def _mask(inputs: Mapping[str, Tensor], name: str, mask_name: str, tokens: int | None) -> Bool[Tensor, "batch token"]:
    given = inputs.get(mask_name)
    if given is not None and given.dim() == 2 and (name in inputs or tokens is None):
        return given.bool()
    like = inputs.get(name, inputs.get("inputs_embeds"))
    if like is not None:
        return torch.ones(like.shape[:2], dtype=torch.bool, device=like.device)
    if tokens is None:
        raise UserError(
            f"These inputs ({', '.join(inputs)}) do not say how many tokens a text has: give tokens=, the number of "
            "positions that the model makes of them."
        )
    first = next(iter(inputs.values()))
    return torch.ones(first.shape[0], tokens, dtype=torch.bool, device=first.device)


def _special(
    inputs: dict[str, Tensor], ids: Tensor, mask: Tensor, tokenizer: PreTrainedTokenizerBase | None
) -> Bool[Tensor, "batch token"]:
    given = inputs.pop("special_tokens_mask", None)  # a tokenizer gives it, and no model takes it
    if given is not None and given.shape == mask.shape:
        return given.bool() & mask
    if tokenizer is None:
        return torch.zeros_like(mask)
    known = [i for i in tokenizer.all_special_ids if i != tokenizer.unk_token_id]
    return torch.isin(ids, torch.tensor(known, device=ids.device)) & mask


def _each_its_own(mask: Tensor, special: Tensor) -> Int[Tensor, "batch token"]:
    word = mask & ~special
    return torch.where(word, word.long().cumsum(-1) - 1, -1)


def _pieces(ids: Tensor, mask: Tensor, tokenizer: PreTrainedTokenizerBase | None) -> tuple[tuple[str, ...], ...]:
    rows = [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
    if tokenizer is None:
        return tuple(tuple(str(place if i < 0 else i) for place, i in enumerate(row)) for row in rows)
    return tuple(tuple(tokenizer.convert_ids_to_tokens(row)) for row in rows)


def _as_words(pieces: tuple[tuple[str, ...], ...], owner: Tensor) -> tuple[tuple[str, ...], ...]:
    """The words as their pieces, joined."""
    out = []
    for row, numbers in zip(pieces, owner.tolist(), strict=True):
        text: dict[int, str] = {}
        for piece, number in zip(row, numbers, strict=False):
            if number >= 0:
                text[number] = text.get(number, "") + piece.removeprefix("##").lstrip("▁Ġ")
        out.append(tuple(text[number] for number in sorted(text)))
    return tuple(out)


def _kinds(
    ids: Tensor,
    mask: Tensor,
    special: Tensor,
    tokenizer: PreTrainedTokenizerBase | None,
    config: PreTrainedConfig | None,
) -> dict[str, Tensor]:
    if tokenizer is not None:
        kinds = TokenKinds(tokenizer, config, int(ids.max()) + 1, translates=False)
        return {name: flags.to(ids.device) for name, flags in kinds.of(ids.cpu(), mask.cpu(), special.cpu()).items()}
    nothing = torch.zeros_like(mask)
    place = torch.arange(mask.shape[1], device=mask.device)
    last = mask.long().cumsum(-1).argmax(-1, keepdim=True)
    return {
        "cls": nothing, "sep": special, "punctuation": nothing, "period_comma": nothing, "other": mask & ~special,
        "first": (place == 0) & mask, "last": (place == last) & mask,
    }  # fmt: skip
