"""Queries and keys that vllm-lens captured while vLLM generated, as attention calls."""

import base64
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from lorgnette.bare.calls import calls
from lorgnette.bare.captured import Calls
from lorgnette.bare.layer_tensors import shape_of
from lorgnette.errors import UserError, optional, outside, shown, whole_numbers
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.types import Json

_NAMES = ("attn_q", "attn_k", "qk_layers", "qk_meta")
_ADVICE = "Capture with extra_args={'output_qk': [layers]} (vllm-lens 1.2 or newer), and give what it returned."


def vllm_calls(
    source: Mapping[str, object] | str | os.PathLike[str],
    *,
    batch: Batch | None = None,
    model: nn.Module | Subject | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    name: str | None = None,
) -> Calls:
    """The attention calls of one request that vLLM served, from what vllm-lens captured of it.

        >>> meta = {"scale": 8**-0.5, "sliding_window": [-1, -1], "logits_soft_cap": 0.0}
        >>> states = {"attn_q": torch.rand(1, 9, 4, 8), "attn_k": torch.rand(1, 9, 2, 8)}
        >>> calls = lo.vllm_calls({**states, "qk_layers": [15], "qk_meta": [meta]})
        >>> calls.sites
        (Site(stack='decoder', kind='self', layer=15),)

    `source` is the `activations` of an output, the JSON with which the server answered (a mapping, or its file), or a
    file that `torch.save` wrote of either. Scale, window, soft cap, ALiBi and learnt sinks are read from it. Layers are
    numbered as in the model. The tokens are those of the prompt and all that were generated but the last.

    What it does not tell you: values. vllm-lens keeps queries and keys, so lenses that weigh values are refused.
    """
    where = "the capture" if isinstance(source, Mapping) else str(source)
    found = _activations(source, where)
    layers = [number + 1 for number in whole_numbers(_list(found["qk_layers"], "qk_layers", where), "qk_layers")]
    query, key = (_states(found[name], name, len(layers), where) for name in ("attn_q", "attn_k"))
    metas = [meta for meta in _list(found["qk_meta"], "qk_meta", where) if isinstance(meta, dict) and "scale" in meta]
    if len(metas) != len(layers):
        raise UserError(f"qk_meta of {where} must describe each of the {len(layers)} layers. {_ADVICE}")
    with outside(f"qk_meta of {where} cannot be read", _ADVICE):
        settings = [_settings(meta, query, key) for meta in metas]
    return calls(
        dict(zip(layers, query, strict=True)),
        dict(zip(layers, key, strict=True)),
        causal=True,
        layers=layers,
        batch=batch,
        model=model,
        tokenizer=tokenizer,
        name=name or (Path(source).stem if isinstance(source, str | os.PathLike) else "vllm"),
        **{what: [each[what] for each in settings] for what in settings[0]},  # type: ignore[arg-type]
    )


def _settings(meta: Json, query: Tensor, key: Tensor) -> dict[str, object]:
    """What vLLM's attention of one layer does beside the product, in the words of `lo.calls`."""
    if meta.get("use_alibi_sqrt"):
        raise UserError("This model has ALiBi with square roots, which is not supported.")
    left, right = map(int, meta.get("sliding_window") or (-1, -1))
    if right > 0:
        raise UserError(f"A window with {right} later keys is not causal, which is not supported.")
    slopes, sinks = meta.get("alibi_slopes"), meta.get("sinks")
    bias = None
    if slopes is not None:
        # slope · (j − i): what depends on the row alone cancels in the softmax, so one number for each key is enough.
        far = torch.arange(key.shape[3], dtype=query.dtype) - (key.shape[3] - 1)
        bias = torch.as_tensor(slopes, dtype=query.dtype)[None, :, None, None] * far
    return {
        "scale": float(meta["scale"]),
        "window": left + 1 if left >= 0 else None,
        "softcap": float(meta.get("logits_soft_cap") or 0.0) or None,
        "sinks": None if sinks is None else torch.as_tensor(sinks, dtype=query.dtype),
        "bias": bias,
    }


def _activations(source: object, where: str) -> Json:
    """The captured entries, each decoded."""
    if isinstance(source, str | os.PathLike):
        source = _file(Path(source))
    if isinstance(source, Mapping) and isinstance(source.get("activations"), Mapping):
        source = source["activations"]
    if not isinstance(source, Mapping):
        raise UserError(f"{where} is no capture of vllm-lens: expected a mapping. Got {shown(source)}. {_ADVICE}")
    missing = [name for name in _NAMES if name not in source]
    if missing:
        raise UserError(f"{where} has no {missing[0]}: queries and keys were not captured. {_ADVICE}")
    return {name: _decoded(source[name], name, where) for name in _NAMES}


def _file(path: Path) -> object:
    if not path.is_file():
        raise UserError(f"There is no file {path}.")
    if path.suffix == ".json":
        with outside(f"{path} is not JSON", _ADVICE):
            return json.loads(path.read_text(encoding="utf-8"))
    with outside(f"{path} cannot be opened", "Give the .json of the server's answer, or a file of torch.save."):
        return torch.load(path, map_location="cpu", weights_only=True)


def _decoded(entry: object, name: str, where: str) -> object:
    """An entry as it is in Python, or as the server sends it: JSON, or a tensor as compressed bytes in base64."""
    if not isinstance(entry, Mapping):
        return entry
    if "__json__" in entry:
        return entry["__json__"]
    if "handle" in entry:
        raise UserError(f"{name} of {where} is still on the server (binary transport): fetch it with vllm-lens first.")
    with outside(f"{name} of {where} cannot be decoded", _ADVICE):
        shape, kind = [int(size) for size in entry["shape"]], np.dtype(entry["dtype"])
        raw = base64.b64decode(entry["data"])
        if entry.get("compression") == "zstd":
            size = int(np.prod(shape)) * kind.itemsize
            raw = optional("pyarrow", "corpora").decompress(raw, decompressed_size=size, codec="zstd", asbytes=True)
        tensor = torch.from_numpy(np.frombuffer(raw, dtype=kind).reshape(shape).copy())
        return tensor.view(torch.bfloat16) if entry.get("original_dtype") == "torch.bfloat16" else tensor


def _states(entry: object, name: str, layers: int, where: str) -> Tensor:
    """[layer token head dim], as vLLM orders it, as [layer text head token dim]."""
    if not isinstance(entry, Tensor) or entry.dim() != 4 or len(entry) != layers:
        got = shape_of(entry.shape) if isinstance(entry, Tensor) else shown(entry)
        raise UserError(f"{name} of {where} must be [layer token head dim] of {layers} layers. Got {got}. {_ADVICE}")
    return entry.transpose(1, 2)[:, None]


def _list(entry: object, name: str, where: str) -> Sequence[object]:
    if not isinstance(entry, list | tuple) or not entry:
        raise UserError(f"{name} of {where} must be a list, one for each layer. Got {shown(entry)}. {_ADVICE}")
    return entry
