"""`lo.load`: a subject by the name of its model, on which device and in which precision."""

import os
from importlib.util import find_spec

import torch

from lorgnette.errors import UserError, shown
from lorgnette.models.loading import load_model
from lorgnette.subject.subject import DTYPES, Subject


def load(
    name: object,
    *,
    dtype: str | None = None,
    device: str | None = None,
    allow_pickle: bool = False,
    revision: str | None = None,
    adapter: str | os.PathLike[str] | None = None,
    packed: bool = False,
) -> Subject:
    """Load a model: a hub name, a folder, a GGUF file, `minilm` from lorgnette[demo], or one of our own.

        >>> model.save_pretrained("mine"), tokenizer.save_pretrained("mine")    # doctest: +ELLIPSIS
        (None, (...))
        >>> lo.load("./mine", dtype="float64").heads
        4

    Weights are read from safetensors, code in a checkpoint is never run, and weights that the checkpoint lacks are
    never initialised at random: the part that needs them is left out and listed in `subject.missing`.

    `dtype`: None means the checkpoint's own ("auto") on a GPU and float32 elsewhere. `device`: cpu, cuda, cuda:N, mps,
    or auto, which spreads the model over all GPUs and offloads the rest to CPU and disk (`device_map="auto"`).
    `revision`: a branch, tag or commit on the hub. `adapter`: the folder of a PEFT adapter to apply; `name` may also be
    the folder of an adapter, which loads its base model too. `packed` keeps the blocks of a GGUF file, where
    transformers has a kernel that multiplies by them; by default they are unpacked.
    """
    if not isinstance(name, str | os.PathLike):
        raise UserError(
            f"load opens a model by its name or folder; got a {type(name).__name__}. For a model in memory, use "
            "Subject(model, tokenizer)."
        )
    if dtype is not None and not isinstance(dtype, str):
        raise UserError(f"Unknown dtype {shown(dtype)}: expected auto, {', '.join(DTYPES)}.")
    where = _device(device)
    kind = dtype or ("auto" if where not in ("cpu", "mps") and torch.cuda.is_available() else "float32")
    if kind != "auto" and kind not in DTYPES:
        raise UserError(f"Unknown dtype {dtype!r}: expected auto, {', '.join(DTYPES)}.")
    loaded = load_model(
        str(name),
        dtype=DTYPES.get(kind, kind),
        device=where,
        allow_pickle=allow_pickle,
        revision=revision,
        adapter=None if adapter is None else str(adapter),
        packed=packed,
    )
    return Subject(loaded.model, loaded.processor or loaded.tokenizer, name=str(name), loaded=loaded)


def _device(requested: str | None) -> str:
    """The requested device, if it exists; by default a GPU if there is one."""
    if requested is not None and not isinstance(requested, str):
        raise UserError(f"Unknown device {shown(requested)}: expected cpu, cuda, cuda:N, mps or auto.")
    where = requested or default_device()
    if where == "auto":
        return where if torch.cuda.is_available() or find_spec("accelerate") is not None else "cpu"
    try:
        known = torch.device(where).type in ("cpu", "cuda", "mps")
    except RuntimeError:
        known = False
    if not known:
        raise UserError(f"Unknown device {where!r}: expected cpu, cuda, cuda:N, mps or auto.")
    kind = torch.device(where).type
    if (kind == "cuda" and not torch.cuda.is_available()) or (kind == "mps" and not torch.backends.mps.is_available()):
        raise UserError(f"The device {where!r} was asked for, but no GPU is available. Use --device cpu.")
    return where


def default_device() -> str:
    """A GPU if there is one; under `torchrun` the processes of a machine share its GPUs out."""
    if not torch.cuda.is_available():
        return "cpu"
    return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"
