"""Inputs of the bare functions, checked against the model before the pass."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor, nn
from transformers.utils import ModelOutput

from lorgnette.errors import UserError, outside
from lorgnette.subject import Subject
from lorgnette.texts.padding import SIDES, real_tokens, refuse_unmasked

IGNORED = -100
"""The label of a position whose prediction does not count, as transformers writes it."""
_COUNTED = (*SIDES, "token_type_ids", "position_ids", "decoder_position_ids")
"""Inputs that are whole numbers."""


def as_tensors(inputs: object, argument: str = "inputs") -> dict[str, object]:
    """The inputs of a model by name. Arrays and lists of numbers become tensors; anything else stays as it is."""
    if not isinstance(inputs, Mapping):
        hint = " Tokenise the texts first: tokenizer(texts, padding=True, return_tensors='pt')."
        raise UserError(
            f"{argument} must be a mapping from names to tensors, as a tokenizer returns it. Got a "
            f"{type(inputs).__name__} instead.{hint if isinstance(inputs, str | list | tuple) else ''}"
        )
    return {str(name): _tensor(str(name), value) for name, value in inputs.items()}


def _tensor(name: str, value: object) -> object:
    if isinstance(value, np.ndarray):
        with outside(f"{name} is an array of {value.dtype}", "Pass numbers."):
            value = torch.from_numpy(np.ascontiguousarray(value))
    elif isinstance(value, list) and name in (*_COUNTED, *SIDES.values(), "labels", "special_tokens_mask"):
        with outside(f"{name} is not a table of numbers", "Pad the texts: tokenizer(…, padding=True)."):
            value = torch.tensor(value)
    needed = (*_COUNTED, *SIDES.values(), "inputs_embeds")
    if name in needed and value is not None and not isinstance(value, Tensor):
        raise UserError(f"{name} must be a tensor. Got {type(value).__name__} instead.")
    if isinstance(value, Tensor) and name in _COUNTED and (value.is_floating_point() or value.is_complex()):
        raise UserError(f"{name} must be whole numbers. Got {str(value.dtype).removeprefix('torch.')} instead.")
    return value


def refuse_shapes(inputs: Mapping[str, object]) -> None:
    """Refuse ids and masks that are not a batch of texts, or do not match each other."""
    for name, mask_name in SIDES.items():
        ids, mask = inputs.get(name), inputs.get(mask_name)
        like = inputs.get("inputs_embeds") if ids is None and name == "input_ids" else ids
        if isinstance(ids, Tensor):
            if ids.dim() != 2:
                hint = " For one text: input_ids[None]." if ids.dim() == 1 else ""
                raise UserError(f"{name} must be [batch token]. Got {ids.dim()} dimensions instead.{hint}")
            if name == "input_ids":
                _refuse_positions(inputs.get("position_ids"), ids)
            if ids.numel() and not ids.is_meta and int(ids.min()) < 0:
                raise UserError(f"{name} has the id {int(ids.min())}: ids count from 0.")
        if isinstance(like, Tensor) and (like.dim() < 2 or 0 in like.shape[:2]):
            raise UserError(f"{name} are empty ({_shape(like)}): expected at least one text with at least one token.")
        if isinstance(mask, Tensor):
            past = cached(inputs, name)
            if past and isinstance(like, Tensor) and mask.dim() == 2 and mask.shape[1] != past + like.shape[1]:
                raise UserError(
                    f"{mask_name} is for {mask.shape[1]} positions: expected {past + like.shape[1]}, one for each of "
                    f"the {past} in past_key_values and one for each of the {like.shape[1]} new ones."
                )
            real_tokens(mask, (len(like), past + like.shape[1]) if isinstance(like, Tensor) else None, mask_name)


def cached(inputs: Mapping[str, object], side: str) -> int:
    """How many positions of this side of the model are in a cache that the user passes."""
    cache, read = inputs.get("past_key_values"), "decoder_input_ids" in inputs
    if cache is None or read != (side == "decoder_input_ids"):
        return 0
    length = getattr(cache, "get_seq_length", None)
    return 0 if length is None else int(length())


def fresh(inputs: Mapping[str, object]) -> dict[str, object]:
    """The inputs with a copy of the cache, if there is one: a pass writes its keys and values into the one it gets."""
    return {name: _copied(value) if _is_cache(value) else value for name, value in inputs.items()}


def _is_cache(value: object) -> bool:
    return not isinstance(value, Tensor | ModelOutput | str | int | float | None)


def _copied(cache: object) -> object:
    """A copy that gradients flow through, which `deepcopy` alone refuses."""
    memo: dict[int, object] = {}
    waiting, seen = [cache], {id(cache): cache}
    while waiting:
        value = waiting.pop()
        if isinstance(value, Tensor):
            memo[id(value)] = value.clone()
            continue
        parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
        for part in (*parts, *getattr(value, "__dict__", {}).values()):
            if id(part) not in seen:
                seen[id(part)] = part
                waiting.append(part)
    return copy.deepcopy(cache, memo)


def _refuse_positions(positions: object, like: Tensor) -> None:
    """Refuse positions of other texts; [3 batch token] is for models that count in three directions."""
    if not isinstance(positions, Tensor):
        return
    texts, tokens = like.shape[:2]
    shapes = [(tokens,), (1, tokens), (texts, tokens), (3, texts, tokens), (4, texts, tokens)]
    if tuple(positions.shape) not in shapes:
        raise UserError(f"position_ids are {_shape(positions)}, and the batch is {_shape(like)} (texts × tokens).")


def model_inputs(subject: Subject, inputs: object) -> dict[str, object]:
    """The inputs as tensors, if this model can take them; else one line that says which cannot be right."""
    made = as_tensors(inputs)
    refuse_elsewhere(subject, made)
    refuse_shapes(made)
    for known in (getattr(subject.model, "config", None), subject.tokenizer if subject.has_tokenizer else None):
        refuse_unmasked(made, getattr(known, "pad_token_id", None), getattr(known, "eos_token_id", None))
    _refuse_unknown_ids(subject, made)
    return made


def refuse_elsewhere(subject: Subject, inputs: Mapping[str, object]) -> None:
    """Refuse tensors on another device than the model's."""
    places = {parameter.device for parameter in subject.model.parameters()}
    for name, tensor in inputs.items():
        if len(places) == 1 and isinstance(tensor, Tensor) and tensor.device not in places:
            home = next(iter(places))
            raise UserError(f"{name} is on {tensor.device} and the model on {home}: move it there, .to({str(home)!r}).")


def _refuse_unknown_ids(subject: Subject, inputs: Mapping[str, object]) -> None:
    tables = {"input_ids": _rows(subject.model, "get_input_embeddings"), "decoder_input_ids": None}
    if tables["input_ids"] is not None and not hasattr(subject.model.config, "decoder_vocab_size"):
        tables["decoder_input_ids"] = tables["input_ids"]
    for name, rows in tables.items():
        ids = inputs.get(name)
        if isinstance(ids, Tensor) and rows is not None and int(ids.max()) >= rows:
            raise UserError(
                f"{name} has the id {int(ids.max())}, and {subject.name!r} has vectors for {rows} ids (0 to "
                f"{rows - 1}). Use the tokenizer that came with the model."
            )


def _rows(model: nn.Module, name: str) -> int | None:
    try:
        table = getattr(model, name)()
    except (AttributeError, NotImplementedError, TypeError):
        return None
    return table.num_embeddings if isinstance(table, nn.Embedding) else None


@contextmanager
def running(subject: Subject, inputs: Mapping[str, object]) -> Iterator[None]:
    """Run the model on these inputs; its errors become one line."""
    ids = inputs.get("input_ids")
    length, limit = ids.shape[1] if isinstance(ids, Tensor) else 0, subject.limit
    advice = "Check that the inputs are those of this model."
    if limit is not None and length > limit:
        advice = f"The longest text has {length} tokens and the model takes {limit}: cut it, or split it."
    with outside(f"{subject.name!r} cannot run on these inputs ({', '.join(inputs)})", advice):
        yield


def predictions(
    subject: Subject, inputs: Mapping[str, object], output: ModelOutput
) -> Bool[Tensor, "batch token"] | None:
    """Which rows of a model's logits are predictions at tokens, not at padding; None if there is one row per text."""
    logits, labels = getattr(output, "logits", None), inputs.get("labels")
    if logits is None or logits.dim() != 3:
        return None
    here, decodes = tuple(logits.shape[:2]), _decodes(subject)
    side = "decoder_input_ids" if decodes else "input_ids"
    like = inputs.get(side, None if decodes else inputs.get("inputs_embeds"))
    if isinstance(like, Tensor):
        real = _kept(_real(inputs, side, like), inputs.get("logits_to_keep"))
        if tuple(real.shape) == here:
            _refuse_no_row(real)
            return real.to(logits.device)
        if bool(real.all()):
            return None
        raise UserError(
            f"The model returns {here[1]} rows of logits for {like.shape[1]} positions, so which of them are padding "
            "is not known: pass texts of one length, without padding."
        )
    if decodes and isinstance(labels, Tensor) and tuple(labels.shape) == here:
        return (labels != IGNORED).to(logits.device)  # of which the model makes its decoder's inputs
    return None


def _real(inputs: Mapping[str, object], side: str, like: Tensor) -> Bool[Tensor, "batch token"]:
    """Which of the positions that the model reads in this pass are tokens."""
    mask, past = inputs.get(SIDES[side]), cached(inputs, side)
    if not isinstance(mask, Tensor):
        return torch.ones(like.shape[:2], dtype=torch.bool, device=like.device)
    return real_tokens(mask, (len(like), past + like.shape[1]), SIDES[side])[:, past:]


def _kept(real: Bool[Tensor, "batch token"], keep: object) -> Bool[Tensor, "batch kept"]:
    """The rows of which the model returns logits: all, the last so many, or those at these positions."""
    if isinstance(keep, Tensor):
        return real[:, keep.to(real.device)]
    return real[:, -keep:] if isinstance(keep, int) and keep else real


def _refuse_no_row(real: Bool[Tensor, "batch kept"]) -> None:
    empty = (~real.any(-1)).nonzero()[:, 0].tolist()
    if empty:
        raise UserError(
            f"logits_to_keep keeps only padding of text {empty[0] + 1}: pad on the left (padding_side='left'), or keep "
            "more rows."
        )


def refuse_labelled_padding(subject: Subject, inputs: Mapping[str, object]) -> None:
    """Refuse labels at padding, which the loss would count."""
    labels, ids = inputs.get("labels"), inputs.get("input_ids")
    if not (isinstance(labels, Tensor) and isinstance(ids, Tensor)):
        return
    if _decodes(subject) or labels.shape != ids.shape:
        return
    if bool((labels[~_real(inputs, "input_ids", ids)] != IGNORED).any()):
        raise UserError(
            f"labels name tokens at padding, so the loss would count them: set them to {IGNORED} there "
            "(labels.masked_fill(attention_mask == 0, -100))."
        )


def _decodes(subject: Subject) -> bool:
    """Whether an encoder and a decoder read different texts."""
    return bool(getattr(getattr(subject.model, "config", None), "is_encoder_decoder", False))


def _shape(tensor: Tensor) -> str:
    return " × ".join(map(str, tensor.shape))
