"""The one gate for checkpoints: config, weights and tokenizer of a folder or a hub name, or one line that says why not.

Nothing outside the folder is read, no pickle unless it is allowed, no code of the checkpoint is run.
"""

import hashlib
import io
import json
import math
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass
from pathlib import Path

import transformers
from safetensors import SafetensorError

import lorgnette.models  # noqa: F401  (registers our own classifier with the Auto classes)
from lorgnette.errors import UserError, near, optional, outside, reason, shown
from lorgnette.model_names import PINNED, UnknownModel, find, is_packaged, known, known_names
from lorgnette.models.marian_small import quiet_tokenizer
from lorgnette.types import Json, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

__all__ = ["Checkpoint", "UnknownModel", "find", "known_names"]

HUB_SECONDS = 3.0
"""How long the hub may take to say whether it has a model."""
LONGEST_CONFIG = 16 << 20
"""Bytes of a config.json; one with names for a hundred thousand classes has a few."""
LARGEST_NUMBER = 2**31 - 1
_MOST = {"layers": 4096, "n_layer": 4096, "position": 1 << 24}
"""The largest number of a field with such a name: a library would make that many modules, or a table that long."""
_SHARES = ("dropout", "pdrop", "layerdrop", "drop_prob", "drop_rate")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True)
class Checkpoint:
    """A model on disk, or on the hub (`folder` is None)."""

    name: str
    folder: Path | None
    allow_pickle: bool = False
    revision: str | None = None
    gguf: str | None = None
    """the file of the folder that is the whole model"""
    packed: bool = False
    """whether the blocks of that file are kept"""

    @staticmethod
    def at(name: str, *, allow_pickle: bool = False, revision: str | None = None, packed: bool = False) -> "Checkpoint":
        """The checkpoint of that name; a folder is looked through before a library opens anything in it."""
        folder = find(known(name))
        if folder is not None and revision is not None:
            raise UserError(
                f"{name!r} is a local model, and only models on the hub have revisions. Remove the revision."
            )
        if folder is not None and folder.is_file():
            optional("gguf", "language")
            return Checkpoint(name, folder.parent, gguf=folder.name, packed=packed)
        if packed:
            raise UserError(f"packed keeps the blocks of a GGUF file, and {name!r} is none. Leave it out.")
        if folder is None:
            _ask_hub(name, revision)
        else:
            _refuse_odd_files(folder)
            _refuse_other_files(name, folder)
            _refuse_odd_config(folder / "config.json")
            _refuse_odd_weights(folder, allow_pickle)
        return Checkpoint(name, folder, allow_pickle, revision)

    @property
    def source(self) -> str:
        return self.name if self.folder is None else str(self.folder)

    @property
    def _options(self) -> dict[str, object]:
        asked = {"revision": self.revision, "gguf_file": self.gguf}
        return {"trust_remote_code": False, **{name: value for name, value in asked.items() if value is not None}}

    def config(self) -> PretrainedConfig:
        with self._opened("config.json", "Put the config.json that came with the weights beside them."):
            return transformers.AutoConfig.from_pretrained(self.source, **self._options)

    def model(self, model_class: type[PreTrainedModel], **options: object) -> tuple[PreTrainedModel, Json]:
        """The model, and what its checkpoint lacks; one that has more than the model takes is refused."""
        to_do = "Download or copy the checkpoint again, with the config.json that came with it."
        if self.packed:  # else transformers would fetch a function from the hub for it
            can = getattr(model_class, "_supports_sdpa", False)
            options |= {"attn_implementation": "sdpa" if can else "eager"}
        with self._opened("weights", to_do), _reading(self.gguf is not None, packed=self.packed) as read:
            model, info = model_class.from_pretrained(
                self.source,
                **options,
                **read,
                output_loading_info=True,
                use_safetensors=None if self.allow_pickle or self.gguf else True,
                **self._options,
            )
        if self.packed:
            _refuse_unpacked(self.name, model)
        elif self.gguf is not None and getattr(model, "hf_quantizer", None) is not None:
            # Its weights are plain numbers now, so the model can be saved as any other.
            model.hf_quantizer.remove_quantization_config(model)
        _refuse_unused(self.name, model, sorted(info["unexpected_keys"]))
        return model, info

    def tokenizer(self) -> PreTrainedTokenizerBase:
        with self._opened("tokenizer", "Put the tokenizer's files that came with the model there."), quiet_tokenizer():
            tokenizer = transformers.AutoTokenizer.from_pretrained(self.source, **self._options)
            words, longest, inputs = len(tokenizer), tokenizer.model_max_length, tokenizer.model_input_names
        if not isinstance(longest, int | float):
            raise UserError(f"The tokenizer of {self.name!r} has model_max_length {longest!r}: expected a number.")
        if not isinstance(inputs, list | tuple) or not all(isinstance(name, str) for name in inputs):
            raise UserError(
                f"The tokenizer of {self.name!r} has model_input_names {shown(inputs)}: expected a list of strings."
            )
        if words - len(set(tokenizer.all_special_ids)) < 3:
            # Without files transformers makes an empty tokenizer, for which every word is unknown.
            raise UserError(
                f"The model {self.name!r} has no tokenizer: its vocabulary is empty, and every word would be unknown. "
                "Put the tokenizer's files (tokenizer.json, or vocab.txt) beside config.json."
            )
        return tokenizer

    def processor(self, config: PretrainedConfig) -> ProcessorMixin | None:
        """What makes ids and pixels of a text with a picture, for a model of both; None without its files."""
        if not hasattr(config, "vision_config") or self.folder is None:
            return None
        if not any((self.folder / name).is_file() for name in ("preprocessor_config.json", "processor_config.json")):
            return None
        optional("PIL", "pictures")
        with self._opened("processor", "Put the files that came with the model there (preprocessor_config.json)."):
            processor = transformers.AutoProcessor.from_pretrained(self.source, **self._options)
        return processor if hasattr(processor, "image_processor") else None

    def weight_files(self) -> list[Path]:
        """The files that the weights are read from, in order; none if they are not known."""
        folder = self.folder or _snapshot(self.name, self.revision)
        if folder is None:
            return []
        if self.gguf is not None:
            return [folder / self.gguf]
        for name in ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"):
            if (folder / name).is_file():
                return [folder / shard for shard in _shards(folder / name)] or [folder / name]
        return sorted(folder.glob("pytorch_model*"))

    @contextmanager
    def _opened(self, part: str, to_do: str) -> Iterator[None]:
        """Run it quietly; errors are reported for this part of this checkpoint."""
        verbosity, bars = transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled()
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        try:
            with outside(f"The {part} of {self.name!r} cannot be opened", to_do):
                yield
        except UserError as error:
            raise self._clearer(error) from error.__cause__
        finally:
            transformers.logging.set_verbosity(verbosity)
            if bars:
                transformers.logging.enable_progress_bar()

    def _clearer(self, error: UserError) -> UserError:
        cause = error.__cause__
        if isinstance(cause, SafetensorError):
            return UserError(
                f"The weights of {self.name!r} are corrupt ({reason(cause)}). Download or copy the checkpoint again."
            )
        if isinstance(cause, RuntimeError) and "mismatched" in str(cause):
            return UserError(
                f"The weights of {self.name!r} do not have the shapes in its config.json. Put the config.json "
                "that came with the weights beside them."
            )
        if self.folder is None and isinstance(cause, OSError):
            return _unknown(self.name, cause)
        return error


@contextmanager
def _reading(gguf: bool, *, packed: bool) -> Iterator[dict[str, object]]:
    """What tells transformers to unpack the blocks of a GGUF file, or to keep them where it has kernels for them."""
    settings = getattr(transformers, "GgufConfig", None)  # versions without it always unpack
    given: dict[str, object] = (
        {} if settings is None or not gguf else {"quantization_config": settings(dequantize=not packed)}
    )
    with redirect_stderr(io.StringIO()) if gguf else nullcontext():  # the reader draws a bar that no setting turns off
        yield given


def _refuse_unpacked(name: str, model: PreTrainedModel) -> None:
    """A file whose blocks transformers has unpacked, though they were to be kept."""
    if not any(hasattr(module, "ggml_type") for module in model.modules()):
        raise UserError(
            f"transformers {transformers.__version__} cannot keep the blocks of {name!r} on this machine: it keeps "
            "those of few architectures, with a kernel from the hub (pip install kernels), which needs a network. "
            "Leave packed out to open the file with its weights unpacked."
        )


def _ask_hub(name: str, revision: str | None = None) -> None:
    """Whether the hub answers at all and knows the name, in seconds: the libraries below try for half a minute."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or _snapshot(name, revision) is not None:
        return
    answer: list[Exception | None] = []

    def ask() -> None:
        from huggingface_hub import model_info

        try:
            model_info(name, revision=revision, timeout=HUB_SECONDS)
            answer.append(None)
        except Exception as error:
            answer.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(HUB_SECONDS)
    error = answer[0] if answer else "no answer"
    if error is not None:  # a host that nobody knows, or that refuses, gives an error of the web client, not an OSError
        raise _unknown(name, OSError(str(error)))


def _snapshot(name: str, revision: str | None = None) -> Path | None:
    """The folder of the hub's cached files for this model."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(name, "config.json", revision=revision)
    return Path(config).parent if isinstance(config, str) else None


def _unknown(name: str, error: OSError) -> UserError:
    if "safetensors" in str(error):
        return UserError(
            f"The hub has no safetensors file for {name!r}, only a pickle, which can run code when opened. If you "
            "trust where it comes from, pass --allow-pickle (allow_pickle=True)."
        )
    names = known_names()
    here = f" On this machine: {', '.join(names)}." if names else ""
    return UnknownModel(
        f"No model {name!r}: there is no such folder, and the hub did not give it (unknown name, or not reachable)."
        f"{near(name, names)}{here} Give the path of a model folder, or go online."
    )


def _refuse_odd_files(folder: Path) -> None:
    """A pipe or a device would be read for ever; a file that may not be read is called missing by libraries."""
    with outside(f"The folder {folder} cannot be read", "Give a model folder that you may read."):
        for file in folder.iterdir():
            if not file.exists():
                continue  # a dangling link: reported as missing if it is needed
            if not stat.S_ISREG(file.stat().st_mode) and not stat.S_ISDIR(file.stat().st_mode):
                raise UserError(f"{file} is a pipe or a device, not a file. Remove it.")
            if file.suffix in (".json", ".safetensors", ".bin", ".txt", ".model", ".spm"):
                file.open("rb").close()


def _refuse_other_files(name: str, folder: Path) -> None:
    """A packaged model must be the published one, byte for byte; a folder of that name is the user's own."""
    if name not in PINNED or not is_packaged(name, folder):
        return
    for file, pinned in PINNED[name].items():
        with outside(f"{folder / file} cannot be read", "Install the package again."), (folder / file).open("rb") as it:
            digest = hashlib.file_digest(it, "sha256").hexdigest()
        if digest != pinned:
            raise UserError(
                f"{folder / file} is not the file that {name!r} was published with (SHA-256 {digest[:12]}…, expected "
                f"{pinned[:12]}…). Install the package again, or give the path of a model folder that you trust."
            )


def config_in(file: Path, kind: str, to_do: str) -> Json:
    """The JSON object in a file; one that is too large, or no object, is refused as not `kind`."""
    if file.stat().st_size > LONGEST_CONFIG:
        raise UserError(f"{file} has {file.stat().st_size:,} bytes; expected at most {LONGEST_CONFIG:,}.")
    with outside(f"{file} is not JSON", to_do):
        config = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise UserError(f"{file} is not {kind}: expected a JSON object.")
    return config


def _refuse_odd_config(file: Path) -> None:
    """Refuse a config that is plainly wrong, before a library spends time on building the model."""
    if not file.is_file():
        gguf = sorted(file.parent.glob("*.gguf"))
        to_do = f"Pass the file {gguf[0]}." if gguf else "Pass a folder that contains one."
        raise UserError(f"{file.parent} has no config.json: it is not a model folder. {to_do}")
    config = config_in(file, "a model config", "Put the config.json that came with the weights there.")
    for name, value in _values(config):
        if name in _WHOLE and value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise UserError(
                f"{file}: {name} is {json.dumps(value)[:40]}, and must be a whole number or null. Put the config.json "
                "that came with the weights there."
            )
        if not isinstance(value, int | float):
            continue
        number = value
        most = next((limit for part, limit in _MOST.items() if part in name), LARGEST_NUMBER)
        is_nan = isinstance(number, float) and math.isnan(number)
        is_no_share = any(part in name for part in _SHARES) and not 0 <= number <= 1
        if is_nan or is_no_share or (isinstance(number, int) and not -LARGEST_NUMBER <= number <= most):
            why = "no model is that large" if not (is_nan or is_no_share) else "no model can have that"
            raise UserError(
                f"{file}: {name} is {str(number)[:24]}, and {why}. Put the config.json that came with the weights "
                "there."
            )


_WHOLE = ("chunk_size_feed_forward", "sliding_window")
"""Fields that transformers reads in the pass, and not before."""


def _values(config: Json) -> Iterator[tuple[str, object]]:
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _values(value)
        else:
            yield name, value


def _refuse_odd_weights(folder: Path, allow_pickle: bool) -> None:
    if (index := folder / "model.safetensors.index.json").is_file():
        _shards(index)
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


def _shards(file: Path) -> list[str]:
    """The files that an index names: in its own folder, by their bare names; none if the file is no index."""
    if not file.name.endswith(".index.json"):
        return []
    with outside(f"{file} cannot be used", "Download or copy the checkpoint again."):
        shards = sorted(set(json.loads(file.read_text(encoding="utf-8"))["weight_map"].values()))
    for shard in shards:
        if not isinstance(shard, str) or Path(shard).name != shard or not (file.parent / shard).is_file():
            raise UserError(
                f"{file} names {str(shard)[:80]!r}, which is not a file in its folder. Download or copy the whole "
                "checkpoint again."
            )
    return shards


_HARMLESS = ("position_ids", "inv_freq", "masked_bias", "attn.bias", "attention.bias")
"""Endings of what older versions saved though it follows from the config."""


def _refuse_unused(name: str, model: PreTrainedModel, unused: list[str]) -> None:
    """Weights of the model itself that it does not take: layers that the config drops, parts of another model.

    Heads for other tasks (`cls.…`, `qa_outputs.…`) are left out, as ever: they are no part of the model that is looked
    at.
    """
    base = getattr(model, "base_model", model)
    inside = {child for child, _ in base.named_children()} | {p for p, _ in base.named_parameters(recurse=False)}
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    lost = [key for key in unused if key.removeprefix(prefix).split(".")[0] in inside and not key.endswith(_HARMLESS)]
    if lost:
        raise UserError(
            f"The checkpoint of {name!r} has weights that the model of its config.json does not use "
            f"({', '.join(lost[:3])}{' …' if len(lost) > 3 else ''}): it would not be the model that was trained. Put "
            "the config.json that came with the weights beside them."
        )
