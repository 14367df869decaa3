"""From a name or folder to a model, safely: safetensors, no remote code, nothing newly initialised in a result."""

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
import transformers
from torch import nn

from lorgnette.errors import UserError, optional, outside, reason
from lorgnette.models.checksums import Checksums, bytes_of, checksums, plain
from lorgnette.models.linear import is_plain, linear_state
from lorgnette.models.offloading import is_offloaded, tensors
from lorgnette.models.opening import Checkpoint, config_in
from lorgnette.models.pruned.checkpoint import pruned_architecture
from lorgnette.types import Json, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

_AT_ONCE = 8
"""Files or tensors that are hashed at a time: hashlib lets threads run side by side."""


@dataclass(frozen=True)
class Loaded:
    """A model with what is known about where its weights came from."""

    name: str
    files: tuple[Path, ...]
    """What the weights were read from; empty if that is not known."""
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    missing: tuple[str, ...]
    """Parameters that the checkpoint does not have; the modules that hold them were left out."""
    checksums: Checksums
    """Of the weights as they were loaded: as long as they are in memory, the files tell what the weights are."""
    processor: ProcessorMixin | None = None
    """What makes ids and pixels of a text with a picture, where the checkpoint has it"""


def load_model(
    name: str,
    *,
    dtype: torch.dtype | str,
    device: str,
    allow_pickle: bool = False,
    revision: str | None = None,
    adapter: str | None = None,
    packed: bool = False,
) -> Loaded:
    """Open a checkpoint as what it is: the class that its config names, with its head.

    Weights go straight to where they are used, file by file, so that they are never in memory twice. `device` "auto"
    spreads them over the GPUs that there are, and what does not fit over CPU and disk. A folder with an adapter alone
    opens on the model that it names.
    """
    name, adapter = base_of(name, adapter)
    checkpoint = Checkpoint.at(name, allow_pickle=allow_pickle, revision=revision, packed=packed)
    config = checkpoint.config()
    place = _straight_to(device)
    model, info = checkpoint.model(
        _model_class(config, whole=checkpoint.gguf is not None), config=config, dtype=dtype, **place
    )
    tokenizer = checkpoint.tokenizer()
    model, missing = _without_new_parts(model, sorted(info["missing_keys"]))
    files = tuple(checkpoint.weight_files())
    if adapter is not None:
        files = (*files, *put_on(model, Path(adapter), allow_pickle=allow_pickle))
    refuse_unreadable(name, model)
    _refuse_not_finite(name, model)
    _refuse_idle_maps(name, model)
    if not place and next(model.parameters()).device != torch.device(device):  # some quantised models cannot be moved
        model.to(device)
    model.eval()
    return Loaded(name, files, model, tokenizer, missing, checksums(model), checkpoint.processor(config))


def _straight_to(device: str) -> dict[str, object]:
    """What makes transformers put weights where they are used at once; it needs accelerate, and a CPU needs nothing."""
    if device == "auto":
        optional("accelerate", "language")
        return {"device_map": "auto"}
    return {"device_map": {"": device}} if device.startswith("cuda") and find_spec("accelerate") is not None else {}


def weights_hash(loaded: Loaded) -> str:
    """SHA-256 of the weights file; of a sharded checkpoint, that of its shards' hashes in order.

    Where no file is known (a model made in memory) it is the hash of the parameters as loaded.
    """
    if not loaded.files:
        return state_hash(loaded.model)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        digests = list(pool.map(_file_hash, loaded.files))
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def state_hash(model: nn.Module) -> str:
    """SHA-256 over the names of all parameters and buffers and the SHA-256 of each: several threads hash at a time."""
    whole, waiting = hashlib.sha256(), deque[tuple[str, Future[bytes]]]()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for name, tensor in tensors(model):  # one that is offloaded is in memory only until it is hashed
            if len(waiting) == _AT_ONCE:
                whole.update(_line(*waiting.popleft()))
            waiting.append((name, pool.submit(_digest, tensor)))
        for one in waiting:
            whole.update(_line(*one))
    return whole.hexdigest()


def _line(name: str, digest: "Future[bytes]") -> bytes:
    return name.encode() + digest.result()


def _digest(tensor: torch.Tensor) -> bytes:
    digest = hashlib.sha256()
    for part in plain(tensor):
        digest.update(bytes_of(part))
    return digest.digest()


def tensors_hash(named: Mapping[str, torch.Tensor]) -> str:
    return _hash(sorted(named.items()))


def _hash(named: Iterable[tuple[str, torch.Tensor]]) -> str:
    digest = hashlib.sha256()
    for name, tensor in named:
        digest.update(name.encode())
        for part in plain(tensor):
            digest.update(bytes_of(part))
    return digest.hexdigest()


def _file_hash(file: Path) -> str:
    with outside(f"{file} cannot be read", "Fetch or copy the checkpoint again."), file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _model_class(config: PretrainedConfig, *, whole: bool = False) -> type[PreTrainedModel]:
    """The class that a config names; a `whole` model, which names none, is a language model with its head."""
    names = config.architectures or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(
            f"config.json: architectures is {str(names)[:80]!r}; expected the name of a model class in a list."
        )
    pruned = pruned_architecture(config)
    if pruned is not None:
        return pruned
    named = getattr(transformers, names[0], None) if names else None
    if isinstance(named, type) and issubclass(named, transformers.PreTrainedModel):
        return named
    if whole and not names:
        return transformers.AutoModelForCausalLM
    registered = transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
    if type(config) in registered and (names or config.model_type.startswith("lorgnette")):
        return transformers.AutoModelForSequenceClassification
    return transformers.AutoModel


def _without_new_parts(model: PreTrainedModel, missing: list[str]) -> tuple[PreTrainedModel, tuple[str, ...]]:
    """Leave out what loading had to make up, so that random numbers never enter a result."""
    if not missing:
        return model, ()
    base = getattr(model, "base_model", model)
    prefix = f"{model.base_model_prefix}."
    if base is not model and all(not key.startswith(prefix) or key.startswith(f"{prefix}pooler.") for key in missing):
        model = base
    inner = [key.removeprefix(prefix) for key in missing]
    if getattr(model, "pooler", None) is not None and any(key.startswith("pooler.") for key in inner):
        model.pooler = None
    left = {name for name, _ in model.named_parameters()}
    lost = [key for key in missing if key in left or key.removeprefix(prefix) in left]
    if lost:
        raise UserError(
            f"The checkpoint lacks weights the model needs ({', '.join(lost[:3])}{' …' if len(lost) > 3 else ''}): "
            "it would run with random weights. Download the complete checkpoint, or one made for this class."
        )
    return model, tuple(missing)


def _refuse_idle_maps(name: str, model: nn.Module) -> None:
    """Quantised maps that do not act here: packed otherwise than the config says, or for another machine."""
    kinds = {type(module): module for module in model.modules() if hasattr(module, "in_features")}
    for module in kinds.values():
        if is_plain(module) or is_offloaded(module):
            continue
        try:
            linear_state(module)
        except Exception as error:  # a layer of another package may raise anything
            raise UserError(
                f"A {type(module).__name__} of the model {name!r} does not run here ({reason(error)}). Use the machine "
                "and the packages that it was quantised for, or the original model."
            ) from error


def _refuse_not_finite(name: str, model: nn.Module) -> None:
    """Parameters are finite; a buffer may hold an infinity (a mask, a word that is never said), and no NaN either."""
    parameters = dict(model.named_parameters())
    for part, kept in tensors(model):
        numbers = [tensor.float() if tensor.dtype.itemsize == 1 else tensor for tensor in plain(kept)]
        if not all(bool(torch.isfinite(t).all() if part in parameters else not torch.isnan(t).any()) for t in numbers):
            raise UserError(
                f"The weights of {name!r} contain NaN or infinity (in {part}): every number would be wrong. "
                "Use a checkpoint from before training diverged."
            )


def refuse_unreadable(name: str, model: nn.Module) -> None:
    """A model whose weights are not in memory: analyses would fail."""
    for path, module in model.named_modules():
        if type(module).__module__.startswith("torch.ao."):
            raise UserError(
                f"{name!r} is quantised by torch.ao ({path}), which is deprecated and hides its weights. Quantise it "
                "by torchao, or use the original model."
            )
        for leaf, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            part = f"{path}.{leaf}" if path else leaf
            if tensor.is_meta and not is_offloaded(module):
                raise UserError(
                    f"A part of {name!r} is not in memory ({part}, on the device meta): it has no numbers. Load its "
                    "weights: …from_pretrained(…)."
                )


CONFIG = "adapter_config.json"


def base_of(name: str, adapter: str | None) -> tuple[str, str | None]:
    """The model and the adapter that a name stands for; the folder of an adapter names its model."""
    if adapter is not None and not (Path(adapter) / CONFIG).is_file():
        raise UserError(f"{adapter} has no {CONFIG}: it is not an adapter folder. Pass the folder that PEFT wrote.")
    folder = Path(name)
    if adapter is not None or not (folder / CONFIG).is_file() or (folder / "config.json").is_file():
        return name, adapter
    base = _adapter_config(folder).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise UserError(
            f"{folder / CONFIG} does not name its base model. Pass the model, and this folder as --adapter."
        )
    return base, name


def put_on(model: PreTrainedModel, folder: Path, *, allow_pickle: bool) -> list[Path]:
    """Load the adapter onto the model, in place, and return the files that it was read from."""
    files = sorted(folder.glob("adapter_model*.safetensors"))
    if not files and not allow_pickle:
        raise UserError(
            f"{folder} has no adapter_model.safetensors. A pickle can run code when opened: pass --allow-pickle "
            "(allow_pickle=True) if you trust where it comes from."
        )
    _adapter_config(folder)
    optional("peft", "language")
    with outside(f"The adapter {folder} cannot be put on", "Give the model that it was trained on."):
        model.load_adapter(str(folder))
    return files or sorted(folder.glob("adapter_model*.bin"))


def _adapter_config(folder: Path) -> Json:
    return config_in(folder / CONFIG, "an adapter config", "Put the one that PEFT wrote there.")
