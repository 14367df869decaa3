"""The repository's address, and the links that need it.

The address stands in one place, `Repository` under `[project.urls]` in `pyproject.toml`. As long as it is not there,
every link that needs it is left out.
"""

import json
import tomllib
from pathlib import Path

DOCS = Path(__file__).resolve().parent
BADGE = "https://colab.research.google.com/assets/colab-badge.svg"


def address() -> str:
    """Without a slash at the end; empty while the project has no public home."""
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Repository", "").removesuffix(".git").rstrip("/")


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
