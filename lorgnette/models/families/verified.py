"""The table of verified models, as `python -m tests.verified` made it, and the page that shows it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("verified.json")

LACKS = {
    "query": "circuits",
    "key": "circuits",
    "value": "circuits",
    "output": "norms and what is made of them",
    "order": "residual and LayerNorm in norms",
    "mixing": "rollouts, relevance",
}
"""What is left out where a part is not known."""
NOTES = {"big_bird": "block-sparse attention (attention_type must be original_full)", "luke": "entities"}
"""What else is refused of a model type that is exact."""


@dataclass(frozen=True)
class Verified:
    """What the check said of one architecture: exact, refused, or not tried."""

    model_type: str
    outcome: str
    found_by: str = ""
    """record or run"""
    lacks: tuple[str, ...] = ()
    prunes: bool = False
    relevance: bool = False
    why: str = ""

    def plain(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value}

    @property
    def left_out(self) -> str:
        note = [NOTES[self.model_type]] if self.model_type in NOTES else []
        return ", ".join([*dict.fromkeys(LACKS[part] for part in self.lacks), *note])


def table() -> tuple[str, tuple[Verified, ...]]:
    """The version of transformers that the table was made with, and its rows."""
    document = json.loads(FILE.read_text(encoding="utf-8"))
    rows = (Verified(**{**row, "lacks": tuple(row.get("lacks", ()))}) for row in document["models"])
    return document["transformers"], tuple(rows)


def families() -> dict[str, str]:
    """Every architecture that was tried, with what `check` says of a tiny model of it: exact, refused, or not tried.

        >>> import lorgnette as lo
        >>> lo.families()["bert"]
        'exact'

    What it does not tell you: whether your checkpoint, whose config may choose other code, is exact: `check` it.
    """
    return {row.model_type: f"{row.outcome}{_more(row)}" for row in table()[1]}


def _more(row: Verified) -> str:
    if row.outcome == "exact":
        return f", without {row.left_out}" if row.left_out else ""
    return f": {row.why}" if row.why else ""


def page() -> str:
    """docs/models.md."""
    version, rows = table()
    exact = [row for row in rows if row.outcome == "exact"]
    refused = [row for row in rows if row.outcome == "refused"]
    untried = [row for row in rows if row.outcome == "not tried"]
    lines = [
        "# Verified models",
        "",
        "Made by `python -m tests.verified` with transformers "
        f"{version}: a tiny random model of every text architecture in its table of configs, a padded batch, and "
        "`lorgnette check`. Exact means: outputs as the model's own attention gives them up to rounding, weights · "
        "value = context, heads · W_O = output, rows that sum to one, padding that gets nothing, every site seen once.",
        "",
        f"**{len(exact)} exact, {len(refused)} refused with the reason, {len(untried)} not tried.** Weights of a "
        "trained checkpoint do not change which code runs, but options of its config may: run `lorgnette check MODEL` "
        "on yours. A model that is not in the table is tried when it is opened.",
        "",
        "## Exact",
        "",
        "Known by a record, or found by running. What is left out could not be proved; lenses that need it say so.",
        "",
        "| model type | known by | left out | heads can be removed | relevance |",
        "|---|---|---|---|---|",
        *(
            f"| `{row.model_type}` | {row.found_by} | {row.left_out} | {_yes(row.prunes)} | {_yes(row.relevance)} |"
            for row in exact
        ),
        "",
        "## Refused",
        "",
        "| model type | why |",
        "|---|---|",
        *(f"| `{row.model_type}` | {_cell(row.why)} |" for row in refused),
        "",
        "## Not tried",
        "",
        "| model type | why |",
        "|---|---|",
        *(f"| `{row.model_type}` | {_cell(row.why)} |" for row in untried),
        "",
    ]
    return "\n".join(lines)


def _yes(value: bool) -> str:
    return "yes" if value else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
