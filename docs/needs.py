"""Which notebooks ask a model that no package brings; where it is missing, the site shows them without outputs."""

import json
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDS = {"what-did-the-answer-use": ("smollm2", "SmolLM2-135M-Instruct")}
"""By notebook: the folder that its model is in, and the model's name."""


def models() -> Path:
    """The folder of the models: `LORGNETTE_MODELS`, or `.models` beside the package, as in `make notebooks`."""
    return ROOT / os.environ.get("LORGNETTE_MODELS", ".models")


def missing(name: str, folder: Path) -> str | None:
    """What a notebook lacks, in words for its page; None if it can run."""
    if name not in NEEDS or (folder / NEEDS[name][0]).is_dir():
        return None
    inside, model = NEEDS[name]
    return (
        f"This page was built without {model}, so the notebook has no outputs here. To run it, put the model into a "
        f"folder `{inside}` and let `LORGNETTE_MODELS` name the folder that holds it, or run it where it can be "
        "downloaded."
    )


def not_run(folder: Path) -> list[str]:
    """Notebooks that are not executed, as patterns of their paths."""
    return [f"notebooks/{name}.ipynb" for name in NEEDS if missing(name, folder)]


def with_note(notebook: str, name: str, folder: Path) -> str:
    """The notebook (JSON) with a note below its first cell, if it was not run."""
    note = missing(name, folder)
    if note is None:
        return notebook
    cells = json.loads(notebook)
    cell = {"cell_type": "markdown", "id": "not-run", "metadata": {}, "source": f":::{{note}}\n{note}\n:::"}
    cells["cells"].insert(1, cell)
    return json.dumps(cells)
