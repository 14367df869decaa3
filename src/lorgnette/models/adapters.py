"""Adapters (PEFT): find the model that an adapter's folder belongs to, and load the adapter onto it."""

import json
from pathlib import Path

from transformers import PreTrainedModel

from lorgnette.errors import UserError, optional, outside

CONFIG = "adapter_config.json"
_LONGEST_CONFIG = 1 << 20


def base_of(name: str, adapter: str | None) -> tuple[str, str | None]:
    """The model and the adapter that a name stands for; the folder of an adapter names its model."""
    if adapter is not None and not (Path(adapter) / CONFIG).is_file():
        raise UserError(f"{adapter} has no {CONFIG}: it is not an adapter folder. Pass the folder that PEFT wrote.")
    folder = Path(name)
    if adapter is not None or not (folder / CONFIG).is_file() or (folder / "config.json").is_file():
        return name, adapter
    base = _config(folder).get("base_model_name_or_path")
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
    _config(folder)
    optional("peft", "language")
    with outside(f"The adapter {folder} cannot be put on", "Give the model that it was trained on."):
        model.load_adapter(str(folder))
    return files or sorted(folder.glob("adapter_model*.bin"))


def _config(folder: Path) -> dict[str, object]:
    file = folder / CONFIG
    if file.stat().st_size > _LONGEST_CONFIG:
        raise UserError(f"{file} has {file.stat().st_size:,} bytes; expected at most {_LONGEST_CONFIG:,}.")
    with outside(f"{file} is not JSON", "Put the one that PEFT wrote there."):
        config = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise UserError(f"{file} is not an adapter config: expected a JSON object.")
    return config
