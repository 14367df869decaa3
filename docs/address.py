"""The repository's address, and the links that need it.

The address stands in one place, `Repository` under `[project.urls]` in `pyproject.toml`. As long as it is not there,
every link that needs it is left out. `python docs/address.py` writes it into CITATION.cff and the recipe for conda.
"""

import json
import re
import tomllib
from pathlib import Path

DOCS = Path(__file__).resolve().parent
BADGE = "https://colab.research.google.com/assets/colab-badge.svg"


def address() -> str:
    """Without a slash at the end; empty while the project has no public home."""
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Repository", "").removesuffix(".git").rstrip("/")


def with_address(text: str, key: str, repository: str) -> str:
    """The YAML with the address as the value of `key`, on its last line; without the key as long as there is none."""
    name = key.strip()
    text = re.sub(rf"^ *{re.escape(name)}: .*\n", "", text, flags=re.MULTILINE)
    return f'{text.rstrip()}\n{key}: "{repository}"\n' if repository else text


FILES = {"CITATION.cff": "repository-code", "conda/recipe.yaml": "  repository"}
"""What else names the address, and the key of the last mapping in it."""


def write() -> None:
    """Write the address into those files."""
    for name, key in FILES.items():
        path = DOCS.parent / name
        path.write_text(with_address(path.read_text(encoding="utf-8"), key, address()), encoding="utf-8")


def theme_options(repository: str) -> dict[str, str]:
    """Furo's links to the source of a page: one to view it, one to edit it."""
    return {"source_repository": repository, "source_branch": "main", "source_directory": "docs/"} if repository else {}


def with_notebook_links(notebook: str, name: str, repository: str) -> str:
    """The notebook (JSON) with a link below its title that downloads it and, on GitHub, one that opens it in Colab."""
    cells = json.loads(notebook)
    line = f"{{nb-download}}`Download this notebook <{name}.ipynb>`"
    host, _, path = repository.partition("://")[2].partition("/")
    if host == "github.com":
        page = f"https://colab.research.google.com/github/{path}/blob/main/docs/notebooks/{name}.ipynb"
        line = f"[![Open in Colab]({BADGE})]({page}) · {line}"
    first = cells["cells"][0]
    title, _, rest = "".join(first["source"]).partition("\n")
    first["source"] = f"{title}\n\n{line}\n{rest}"
    return json.dumps(cells)


if __name__ == "__main__":
    write()
