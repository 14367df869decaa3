"""The table of verified models, as `python -m tests.verified` made it, and the page that shows it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from lorgnette.types import Json

FILE = Path(__file__).with_name("verified.json")

LACKS = {
    "query": "QK circuits",
    "key": "QK circuits",
    "value": "circuits",
    "latent": "circuits",
    "output": "norms and everything derived from them",
    "gate": "edges and centred=true (a gate)",
    "scale": "edges and centred=true (a gate)",
    "norm": "centred=true (a norm before W_O)",
    "order": "residual and LayerNorm in norms",
    "mixing": "rollout",
    "mixers": "relevance",
}
"""What is unavailable where a part is not known."""
NOTES = {
    "big_bird": "block-sparse attention (attention_type must be original_full)",
    "luke": "entities",
    "deepseek_v4": "because what a head gives is rotated by the query's position before W_O, which is two maps",
    "diffllama": "because heads are subtracted in pairs and normalised before W_O",
    "jetmoe": "because W_Q and W_O are experts that are chosen for each token",
    "muse_spark_text": "because a norm of each head, and then a gate, come before W_O",
    "neomme": "because what a head gives loses its part along the token's own value before W_O",
}
"""What else is not supported for a model type that is exact, or why W_O is not known."""


@dataclass(frozen=True)
class Verified:
    """The outcome of `check` for one architecture: exact, refused, or not tried."""

    model_type: str
    outcome: str
    found_by: str = ""
    """record or run"""
    lacks: tuple[str, ...] = ()
    prunes: bool = False
    relevance: bool = False
    why: str = ""
    eager: bool = False
    """whether its weights were compared with those that its eager attention returns"""
    stacks: tuple[str, ...] = ()
    """of a model that sees pictures: what its stacks are called"""
    unseen: str = ""
    """what of such a model does not go through transformers' attention interface"""
    hybrid: str = ""
    """how many of its layers have attention, if not all have"""
    tolerance: str = ""
    """of quantised maps: what the comparison with x · W + b found"""

    def plain(self) -> Json:
        return {name: value for name, value in asdict(self).items() if value}

    @property
    def left_out(self) -> str:
        note = [NOTES[self.model_type]] if self.model_type in NOTES else []
        note += [self.unseen] if self.unseen else []
        lacking = list(dict.fromkeys(LACKS[part] for part in self.lacks))
        if {"value", "latent", "gate", "norm"} & {*self.lacks}:
            lacking = ["circuits", *(each for each in lacking if "circuits" not in each)]
        return ", ".join([*lacking, *note])


def table() -> tuple[str, tuple[Verified, ...]]:
    """The version of transformers that the table was made with, and its rows."""
    document = json.loads(FILE.read_text(encoding="utf-8"))
    return document["transformers"], _rows(document["models"])


def pictures() -> tuple[Verified, ...]:
    """The rows of models of pictures and text."""
    return _rows(json.loads(FILE.read_text(encoding="utf-8"))["pictures"])


def untried_pictures() -> tuple[str, ...]:
    """The types of pictures and text in transformers that the table has no tiny model of."""
    return tuple(json.loads(FILE.read_text(encoding="utf-8"))["untried_pictures"])


def senses() -> tuple[Verified, ...]:
    """The rows of models of pictures or sound alone."""
    return _rows(json.loads(FILE.read_text(encoding="utf-8"))["senses"])


def quantised() -> tuple[Verified, ...]:
    """The rows of formats of quantised weights."""
    return _rows(json.loads(FILE.read_text(encoding="utf-8"))["quantised"])


def _rows(plain: list[Json]) -> tuple[Verified, ...]:
    lists = ("lacks", "stacks")
    return tuple(Verified(**{**row, **{name: tuple(row.get(name, ())) for name in lists}}) for row in plain)


def families() -> dict[str, str]:
    """Every architecture and format of the table with the outcome of `check` on a tiny model: exact, refused, or not
    tried. Formats of quantised weights are there by their names in the table.

        >>> import lorgnette as lo
        >>> lo.families()["bert"]
        'exact'

    What it does not tell you: whether your checkpoint is exact, since its config may select other code; `check` it.
    """
    rows = (*quantised(), *senses(), *table()[1], *pictures())
    made = {row.model_type: f"{row.outcome}{_more(row)}" for row in rows}
    return made | dict.fromkeys(sorted(set(untried_pictures()) - set(made)), "not tried")


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
        "`python -m tests.verified` generates this page: it builds a tiny random model of every text architecture in "
        f"transformers {version} and runs `lorgnette check` on it in every way that the model can be run: with padding "
        "on the right and on the left, one text without padding, no mask, one token, and with a cache, where it has "
        "one. Exact means that the outputs equal those of the model's own attention up to rounding, that outputs and "
        "weights equal those of its eager attention where it returns weights, weights · value = context, heads · W_O = "
        "output, rows sum to one, padding receives no weight, and every site is called exactly once.",
        "",
        f"**{len(exact)} exact, {len(refused)} refused with a reason, {len(untried)} not tried.** The weights of a "
        "trained checkpoint do not change which code runs, but its config may: run `lorgnette check MODEL` on yours. "
        "A model that is not in the table is checked when it is loaded.",
        "",
        "## Exact",
        "",
        "The layout of a model comes from a record of its family, or from a trial run. What is listed as unavailable "
        "could not be verified; lenses that need it say so. Attention in: how many layers of the tiny model have "
        "attention, if not all have; `lorgnette check`, the facts of a subject, the notes of every result, `trace` and "
        "the views say which, by the model's own layer numbers. The other layers mix tokens by recurrences, "
        "convolutions or linear attention, and [relevance passes through these by their tangent]"
        "(lenses/relevance.md#layers-without-attention). They have no weights that could be multiplied, so there is no "
        "rollout. The effective weights of linear attention, which are not normalised, are not computed.",
        "",
        "| model type | layout from | attention in | equals eager weights | unavailable | heads can be removed "
        "| relevance |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| `{row.model_type}` | {row.found_by} | {row.hybrid} | {_yes(row.eager)} | "
            f"{row.left_out} | {_yes(row.prunes)} | {_yes(row.relevance)} |"
            for row in exact
        ),
        "",
        *_pictures(),
        *_senses(),
        *_quantised(),
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


def _pictures() -> list[str]:
    """The section of models of pictures and text."""
    rows = pictures()
    exact = [row for row in rows if row.outcome == "exact"]
    others = [row for row in rows if row.outcome != "exact"]
    return [
        "## Pictures and text",
        "",
        f"**{len(exact)} exact, {sum(row.model_type[0].isupper() for row in exact)} of them with a head, {len(others)} "
        "refused with a reason.** Two texts of different lengths, each with a "
        "picture, are run as they are, with padding on the left, without the pictures, and with the pictures in a "
        "cache, as far as the model runs so by itself. `lo.attention(model, **inputs)` names the stacks as here. "
        "Equals eager weights: every tower against the attention function in the model's own file. Relevance: "
        "propagation has a rule for every module that texts pass through; it was computed with LLaVA. The last rows "
        "are classes with their head.",
        "",
        "| model type or class | stacks | attention in | equals eager weights | unavailable | relevance |",
        "|---|---|---|---|---|---|",
        *(
            f"| `{row.model_type}` | {', '.join(row.stacks)} | {row.hybrid} | {_yes(row.eager)} | {row.left_out} | "
            f"{_yes(row.relevance)} |"
            for row in exact
        ),
        "",
        "| model type | why it is refused |",
        "|---|---|",
        *(f"| `{row.model_type}` | {_cell(row.why)} |" for row in others),
        "",
        f"Not tried: {', '.join(f'`{name}`' for name in untried_pictures())}. Discovery looks at these as at any other "
        "model, and refuses what it cannot prove.",
        "",
    ]


def _senses() -> list[str]:
    """The section of models of pictures or sound alone."""
    return [
        "## Pictures or sound alone",
        "",
        "Run on noise, in float64; the inputs and how to make batches of them are on "
        "[a page of their own](pictures-and-sound.md). Weights equal those of eager attention where it returns them; "
        "of WavLM, which returns the mean over its heads, the mean does.",
        "",
        "| model | outcome | stacks | unavailable |",
        "|---|---|---|---|",
        *(
            f"| {row.model_type} | {row.outcome} | {', '.join(row.stacks)} | {row.left_out or _cell(row.why)} |"
            for row in senses()
        ),
        "",
    ]


def _quantised() -> list[str]:
    """The section of formats of quantised weights."""
    return [
        "## Quantised weights",
        "",
        "A tiny Llama whose linear maps are packed in each format, on a CPU. Weights, entropy, ablation, patching and "
        "generation need no weight matrices. Norms, circuits and relevance take the matrices that the packed numbers "
        "stand for; on real inputs, `check` compares x · W + b with what the map gave. Where a map rounds its inputs "
        "too, they may differ by 1.5 times the standard deviation of this rounding; where rounding stops gradients, "
        "relevance, gradients and importance are refused by name. GPTQ, AWQ, FP8 and one int8 are layers in the layout "
        "of these formats, packed by the tests, because their packages need a GPU; the blocks of GGUF are real, and "
        "the tests multiply by them in place of the hub's kernel; the others are real.",
        "",
        "| format | outcome | x · W + b | unavailable | relevance |",
        "|---|---|---|---|---|",
        *(
            f"| {row.model_type} | {row.outcome} | {row.tolerance or _cell(row.why)} | {row.left_out} | "
            f"{_yes(row.relevance)} |"
            for row in quantised()
        ),
        "",
    ]


def _yes(value: bool) -> str:
    return "yes" if value else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
