"""Values of the command line's own options, read from the commands themselves."""

import os
from pathlib import Path
from typing import Any

import typer
from hypothesis import strategies as st

from fuzz.damage import HOSTILE
from fuzz.place import Place
from fuzz.trial import Answer, Case, difference, numbers
from lorgnette.cli.app import app

COMMANDS = (
    "look",
    "trace",
    "check",
    "report",
    "compare",
    "induced",
    "probe",
    "rationales",
    "list",
    "serve",
    "train",
    "prune",
    "reproduce",
)
SLOW = ("train", "prune", "probe", "serve", "reproduce")
"""Where a right value begins minutes of work, the case also gives a wrong one, and that must be said before."""

_NUMBERS = (
    "0", "1", "-1", "2", "3", "7", "99999999999999999999", "-99999999999999999999", "1e400", "inf", "-inf", "nan",
    "0.5", "1.5", "1_0", "٣", "0x10", "1" * 5000, "", " ", "+1", "1,2", "true", "2147483648", "9223372036854775807",
)  # fmt: skip
_WORDS = (
    "", " ", "x", "cpu", "cuda", "cuda:99", "mps", "meta", "float32", "float64", "bfloat16", "int8", "weights",
    "norms,weights", "nope", "all", "weights,", ",", "../x", "/", "/dev/null", "/dev/full", "/proc/x", "@/out",
    "@/out/deep/er", "a" * 300, "a/" * 2000, "é", "🙂", "\x1b[2J", "[bold]", "0=1", "LABEL_0=a", "a=b,a=c", "=",
    "1.1", "0.0", "99.99", "1.1,1.2", "train", "test", "label", "text", "png,svg", "mean", "--", "-", "~", "$HOME",
    "@/texts.txt", "@/rows.jsonl", "@/trees.conllu", "\udcff",
)  # fmt: skip
words = st.one_of(st.sampled_from(_WORDS), st.text(max_size=12).map(lambda text: text.replace("\0", "0")))
words = st.one_of(words, st.sampled_from([v.replace("\0", "0") for v in HOSTILE if isinstance(v, str)]))
TREE = b"1\tcat\tcat\tNOUN\tNN\t_\t2\tnsubj\t_\t_\n2\tsat\tsit\tVERB\tVB\t_\t0\troot\t_\t_\n\n"
ROWS = b"\n".join(b'{"text": "the cat sat %d", "label": "%s"}' % (n, b"ab"[n % 2 : n % 2 + 1]) for n in range(12))


def cases(place: Place) -> st.SearchStrategy[Case]:
    return st.one_of(_any_option(place), _any_option(place), _any_option(place), _same_numbers(place), _usage(place))


def _parameters(command: str) -> list[Any]:
    return list(typer.main.get_command(app).commands[command].params)  # type: ignore[attr-defined]


@st.composite
def _value(draw: st.DrawFn, parameter: Any) -> list[str]:
    name = parameter.opts[0]
    if getattr(parameter, "is_flag", False):
        return [draw(st.sampled_from([*parameter.opts, *parameter.secondary_opts]))]
    numeric = any(kind in repr(parameter.bare_type) for kind in ("int", "float"))
    value = draw(st.one_of(st.sampled_from(_NUMBERS), st.integers().map(str)) if numeric else words)
    return [f"{name}={value}"] if name.startswith("--") else [name, value]


def _basis(command: str, place: Place) -> list[str]:
    """A command line that is right, and quick."""
    model, corpus = place.model(), ["-c", "@/rows.jsonl"]
    exact = ["--dtype", "float64"]
    return {
        "look": [model, *corpus, "-l", "weights", *exact],
        "trace": [model, "the cat sat", *exact],
        "check": [model, *exact],
        "report": ["@/run"],
        "compare": ["@/run", "@/run"],
        "induced": [model, "-c", "@/trees.conllu", "--head", "1.1", *exact],
        "probe": [model, "-c", "@/data", "--label", "nope", *exact],
        "rationales": [model, *corpus, *exact],
        "list": ["lenses"],
        "serve": [model, "--port", "-1"],
        "train": [model, *corpus, "--label-column", "nope", "-o", "@/trained"],
        "prune": [model, *corpus, "--label-column", "nope", "-o", "@/pruned"],
        "reproduce": ["nope"],
    }[command]


def _prepared(place: Place, *needs: str) -> Any:
    def prepare(folder: Path) -> None:
        os.chdir(folder)  # names without a folder are written here
        if "run" in needs:
            place.copied("run", folder)

    return prepare


FILES = {"texts.txt": b"the cat sat\na dog\n", "rows.jsonl": ROWS, "trees.conllu": TREE}


@st.composite
def _any_option(draw: st.DrawFn, place: Place) -> Case:
    """One or two options of a command with hostile values."""
    command = draw(st.sampled_from(COMMANDS))
    own = [parameter for parameter in _parameters(command) if parameter.opts[0].startswith("--")]
    own = [parameter for parameter in own if parameter.name not in ("help", "version")]
    given = (
        [part for parameter in draw(st.lists(st.sampled_from(own), max_size=3)) for part in draw(_value(parameter))]
        if own
        else []
    )
    needs = ["run"] if command in ("report", "compare") else []
    return Case(f"{command} {given}"[:300], (command, *_basis(command, place), *given), FILES, _prepared(place, *needs))


@st.composite
def _usage(draw: st.DrawFn, place: Place) -> Case:
    """Words in any order."""
    arguments = draw(
        st.lists(
            st.one_of(words, st.sampled_from(("look", "trace", "report", "list", "-c", "--lens", "-h"))),
            min_size=1,
            max_size=5,
        )
    )
    quick = [a for a in arguments if a not in ("demo", "serve", "reproduce")] or ["list"]
    return Case(f"{quick}"[:300], tuple(quick), FILES, _prepared(place))


@st.composite
def _same_numbers(draw: st.DrawFn, place: Place) -> Case:
    """Options that may not change any number."""
    options = draw(
        st.lists(
            st.sampled_from(
                (
                    ("--batch-tokens", "1"),
                    ("--batch-tokens", "50"),
                    ("--batch-tokens", "999999999999"),
                    ("--limit", "12"),
                    ("--limit", "9999999999"),
                    ("--seed", "7"),
                    ("--truncate",),
                    ("--device", "cpu"),
                    ("--label-column", "label"),
                    ("--out", "@/new"),
                    ("--lens", "weights"),
                    ("--lens", "weights,weights"),
                )
            ),
            max_size=3,
            unique_by=lambda option: option[0],
        )
    )
    given = [part for option in options for part in option]

    def judge(answer: Answer, folder: Path) -> str | None:
        texts = [f"the cat sat {number}" for number in range(12)]
        return difference(numbers(answer.results[-1]), place.expected(texts))

    return Case(f"the same with {given}", ("look", *_basis("look", place), *given), FILES, _prepared(place), judge)
