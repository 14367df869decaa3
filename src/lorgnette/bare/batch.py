"""`lo.batch(inputs)`: a Batch from tensors, with or without a tokenizer."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from lorgnette.bare.inputs import as_tensors, refuse_shapes
from lorgnette.errors import UserError, outside, refuse_no_mapping, shown, whole_number, whole_numbers
from lorgnette.subject import refuse_tokenizer
from lorgnette.texts.batch import Batch, Tokens, TokenTexts
from lorgnette.texts.example import Example
from lorgnette.texts.padding import SIDES, is_first, is_last, real_tokens, refuse_unmasked
from lorgnette.texts.parts import refuse_name
from lorgnette.texts.patches import IMAGE, parts_of, patches_of, pictured_in
from lorgnette.texts.token_kinds import TokenKinds


def batch(
    inputs: Mapping[str, object],
    tokenizer: PreTrainedTokenizerBase | None = None,
    words: Sequence[Sequence[str]] | None = None,
    *,
    word_ids: Int[Tensor, "batch token"] | None = None,
    config: PreTrainedConfig | None = None,
    tokens: int | None = None,
    grid: Sequence[int] | None = None,
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
    an attention mask, a batch has no padding; padding may stand before the texts or behind them.

    The `config` of a model that sees pictures names the id that stands for a patch: `image`, `text` and `special` are
    then parts of the texts, and `batch.source.patches` says where on the picture each patch is. Where config and inputs
    do not say it, `grid` does: the rows and columns of tokens of one picture or tile. With `tokens` alone, the last
    rows × columns positions are the patches.
    """
    made = _tensors(inputs)
    refuse_shapes(made)
    pad = getattr(tokenizer if tokenizer is not None else config, "pad_token_id", None)
    refuse_unmasked(made, pad, getattr(tokenizer if tokenizer is not None else config, "eos_token_id", None))
    refuse_tokenizer(tokenizer, "lo.batch")
    tokens = None if tokens is None else whole_number(tokens, "tokens", at_least=1)
    source = _side(made, "input_ids", tokenizer, config, words, word_ids, tokens, grid)
    if parts is not None:
        refuse_no_mapping(parts, "parts", "{'registers': [1, 2]}")
        source = source.replaced(categories={**source.categories, **_parts(source.mask, parts)})
    target = None
    if "decoder_input_ids" in made:
        target = _side(made, "decoder_input_ids", tokenizer, config, None, None, None, None)
    count = len(source.mask)
    names = [f"text {number + 1}" for number in range(count)]
    names = names if ids is None else [str(name) for name in _one_each(ids, count, "ids")]
    given = [None] * count if labels is None else _one_each(labels, count, "labels")
    examples = tuple(
        Example(name, " ".join(text), label=label)  # which checks the label
        for name, text, label in zip(names, source.words, given, strict=True)
    )
    return Batch(made, source, target, examples)


def _tensors(inputs: object) -> dict[str, Tensor]:
    out: dict[str, Tensor] = {}
    for name, value in as_tensors(inputs).items():
        if isinstance(value, Tensor) and value.is_meta:
            raise UserError(f"{name} is on the device meta, and has no values.")
        if isinstance(value, Tensor):
            out[name] = value
        elif value is not None:
            raise UserError(f"{name} of the inputs must be a tensor. Got {type(value).__name__} instead.")
    if not out:
        raise UserError("inputs are empty: pass what the tokenizer returned (input_ids, attention_mask, …).")
    return out


def _one_each(values: object, count: int, argument: str) -> list[Any]:
    if isinstance(values, Tensor | np.ndarray):
        values = values.tolist()
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise UserError(f"{argument} must be a list, one for each text. Got {shown(values)} instead.")
    if len(values) != count:
        raise UserError(f"There are {count} texts and {len(values)} {argument}.")
    return list(values)


def _parts(mask: Tensor, parts: Mapping[str, Sequence[int]]) -> dict[str, Bool[Tensor, "batch token"]]:
    masks = {}
    for name, places in parts.items():
        refuse_name(name)
        places = whole_numbers(places, f"parts[{name!r}]")
        if not all(0 <= place < mask.shape[1] for place in places):
            raise UserError(
                f"The part {name!r} names positions that do not exist: positions are 0 to {mask.shape[1] - 1}."
            )
        masks[name] = torch.zeros_like(mask)
        masks[name][:, places] = mask[:, places]
    return masks


def _side(
    inputs: dict[str, Tensor], name: str, tokenizer: PreTrainedTokenizerBase | None, config: PreTrainedConfig | None,
    words: Sequence[Sequence[str]] | None, word_ids: object, tokens: int | None, grid: Sequence[int] | None,
) -> Tokens:  # fmt: skip
    mask = _mask(inputs, name, SIDES[name], tokens)
    ids = inputs[name] if name in inputs else torch.full(mask.shape, -1, device=mask.device)
    if tokenizer is not None:
        _refuse_nameless(inputs, name, ids[mask], tokenizer)
    pictured = _pictured(ids, config, tokens, grid) if name == "input_ids" else {}
    seen = torch.stack([torch.zeros_like(mask), *pictured.values()]).any(0)
    special = _special(inputs, ids, mask, tokenizer) & ~seen
    owner = _each_its_own(mask, special | seen) if word_ids is None else _owners(word_ids, mask)
    pieces = _pieces(ids, mask, tokenizer)
    named = _as_words(pieces, owner, mask) if words is None else _words(words, owner)
    kinds = _kinds(ids, mask, special, tokenizer, config)
    if pictured:
        kinds |= parts_of(pictured, mask, special)
    patches = patches_of(pictured, inputs, config, grid)
    return Tokens(ids, mask, special, kinds, TokenTexts.of(owner, pieces, named), patches)


def _pictured(
    ids: Tensor, config: PreTrainedConfig | None, tokens: int | None, grid: Sequence[int] | None
) -> dict[str, Bool[Tensor, "batch token"]]:
    """Which positions stand for pictures: those with the id that the config names, or the last ones of a grid."""
    pictured = pictured_in(ids, config)
    if grid is None or pictured:
        return pictured
    if tokens is None:
        named = getattr(config, "image_token_id", None)
        raise UserError(
            "grid is given, and no token stands for a picture: "
            + ("pass config=model.config, which names its id." if named is None else f"no id is {named}.")
        )
    sizes = whole_numbers(grid, "grid", at_least=1)
    if math.prod(sizes) > tokens:
        raise UserError(f"grid has {math.prod(sizes)} patches, and a picture has {tokens} tokens.")
    where = torch.zeros_like(ids, dtype=torch.bool)
    where[:, tokens - math.prod(sizes) :] = True
    return {IMAGE: where}


def _mask(inputs: Mapping[str, Tensor], name: str, mask_name: str, tokens: int | None) -> Bool[Tensor, "batch token"]:
    given = inputs.get(mask_name)
    like = inputs.get(name, inputs.get("inputs_embeds"))
    if given is not None and (like is not None or tokens is None):
        return real_tokens(given, None if like is None else tuple(like.shape[:2]), mask_name)
    if given is not None and not bool(given.all()):
        raise UserError(
            f"{mask_name} hides something, but not by tokens, so which of the {tokens} positions are padding is not "
            "known: pass inputs of one length, without padding."
        )
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


def _refuse_nameless(inputs: Mapping[str, Tensor], name: str, ids: Tensor, tokenizer: PreTrainedTokenizerBase) -> None:
    """Tokens that the tokenizer has no piece for."""
    if name not in inputs:
        raise UserError(
            f"A tokenizer names tokens by their ids, and these inputs ({', '.join(inputs)}) have no {name}: add them "
            "for lo.batch, or leave out the tokenizer."
        )
    if int(ids.max()) >= len(tokenizer):
        raise UserError(
            f"{name} has the id {int(ids.max())}, and the tokenizer has {len(tokenizer)} pieces (0 to "
            f"{len(tokenizer) - 1}). Use the tokenizer that made these ids."
        )


def _owners(word_ids: object, mask: Tensor) -> Int[Tensor, "batch token"]:
    """The word of each token, as a tensor; None, as tokenizers write it, is −1."""
    if isinstance(word_ids, list | tuple) and all(isinstance(row, list | tuple) for row in word_ids):
        with outside("word_ids is not a table of numbers", "Give one for each position; None or −1: no word."):
            word_ids = torch.tensor([[-1 if number is None else number for number in row] for row in word_ids])
    numeric = isinstance(word_ids, np.ndarray) and word_ids.dtype.kind in "iu"
    owner = torch.as_tensor(word_ids) if numeric else word_ids
    if not isinstance(owner, Tensor) or owner.shape != mask.shape or owner.is_floating_point():
        got = list(owner.shape) if isinstance(owner, Tensor) else type(owner).__name__
        raise UserError(f"word_ids must be whole numbers of shape {list(mask.shape)}. Got {got} instead.")
    return torch.where(mask, owner.to(mask.device), -1)


def _words(words: object, owner: Tensor) -> tuple[tuple[str, ...], ...]:
    texts = _one_each(words, len(owner), "words")
    for text, (row, most) in enumerate(zip(texts, owner.amax(-1).tolist(), strict=True), 1):
        if isinstance(row, str) or not isinstance(row, Sequence) or not all(isinstance(word, str) for word in row):
            raise UserError(f"words must be a list of words for each text. Text {text} has {shown(row)} instead.")
        if most >= len(row):
            raise UserError(f"Text {text} has {len(row)} words, but a token belongs to word {most} (counted from 0).")
    return tuple(map(tuple, texts))


def _pieces(ids: Tensor, mask: Tensor, tokenizer: PreTrainedTokenizerBase | None) -> tuple[tuple[str, ...], ...]:
    rows = [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
    if tokenizer is None:
        return tuple(tuple(str(place if i < 0 else i) for place, i in enumerate(row)) for row in rows)
    return tuple(tuple(tokenizer.convert_ids_to_tokens(row)) for row in rows)


def _as_words(pieces: tuple[tuple[str, ...], ...], owner: Tensor, mask: Tensor) -> tuple[tuple[str, ...], ...]:
    """The words as their pieces, joined."""
    out = []
    for row, numbers in zip(pieces, (each[real].tolist() for each, real in zip(owner, mask, strict=True)), strict=True):
        text: dict[int, str] = {}
        for piece, number in zip(row, numbers, strict=True):
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
    return {
        "cls": nothing, "sep": special, "punctuation": nothing, "period_comma": nothing, "other": mask & ~special,
        "first": is_first(mask), "last": is_last(mask),
    }  # fmt: skip
