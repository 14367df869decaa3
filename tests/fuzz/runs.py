"""Folders of results and kept states that were edited: one line, or what they say and nothing else."""

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzz.damage import damaged_bytes, damaged_json, document
from fuzz.place import Place, content
from fuzz.trial import Answer, Case, difference, numbers

FILES = ("weights.json", "norms.json", "lorgnette.json", "examples.json")


def cases(place: Place) -> st.SearchStrategy[Case]:
    return st.one_of(_json(place), _json(place), _json(place), _bytes(place), _missing(place), _kept(place))


@st.composite
def _command(draw: st.DrawFn) -> tuple[str, ...]:
    commands = (
        ("report", "@/run"),
        ("report", "@/run", "--out", "@/page.html"),
        ("compare", "@/run", "@/whole"),
        ("compare", "@/whole", "@/run"),
    )
    return draw(st.sampled_from(commands))


def _case(draw: st.DrawFn, place: Place, what: str, files: dict[str, bytes | None]) -> Case:
    def prepare(folder: Path) -> None:
        run = place.copied("run", folder)
        place.copied("run", folder / "w").rename(folder / "whole")
        for name, now in files.items():
            (run / name).unlink(missing_ok=True)
            if now is not None:
                (run / name).write_bytes(now)

    return Case(what, draw(_command()), prepare=prepare, judge=_says_what_it_holds)


def _says_what_it_holds(answer: Answer, folder: Path) -> str | None:
    """What was read, written again, is the same document: nothing was dropped, cast or put elsewhere."""
    from lorgnette.results import Results

    for name, result in Results.load(folder / "run").items():
        before = json.loads((folder / "run" / f"{name}.json").read_text())
        after = json.loads(result.to_json())
        for part in ("lens", "provenance", "data"):
            if _plain(before[part], part) != _plain(after[part], part):
                return f"{part} of {name}.json is not what was read"
    return None


def _plain(value: Any, part: str) -> Any:
    """Without fields of the provenance that were left out, and sizes of axes that nothing has."""
    if part == "provenance":
        return {key: inner for key, inner in value.items() if inner is not None}
    return {k: v for k, v in value.items() if k != "sizes"} if part == "data" else value


@st.composite
def _json(draw: st.DrawFn, place: Place) -> Case:
    name = draw(st.sampled_from(FILES))
    said, now = draw(damaged_json(json.loads(content(place.run / name))))
    return _case(draw, place, f"{name}: {said}", {name: document(now)})


@st.composite
def _bytes(draw: st.DrawFn, place: Place) -> Case:
    name = draw(st.sampled_from(FILES))
    return _case(draw, place, f"bytes of {name}", {name: draw(damaged_bytes(content(place.run / name)))})


@st.composite
def _missing(draw: st.DrawFn, place: Place) -> Case:
    files: dict[str, bytes | None] = {}
    for name in draw(st.lists(st.sampled_from(FILES), min_size=1, max_size=2, unique=True)):
        other = content(place.run / draw(st.sampled_from(FILES)))
        files[name] = draw(st.sampled_from((None, b"", b"{}", b"null", other, b"\xff\xfe")))
    said = {name: None if now is None else now[:12] for name, now in files.items()}
    return _case(draw, place, f"files {said}", files)


@st.composite
def _kept(draw: st.DrawFn, place: Place) -> Case:
    """What an interrupted look kept: any damage is one line, or the numbers of a run that was never interrupted."""
    now = draw(damaged_bytes(place.kept_states))

    def prepare(folder: Path) -> None:
        (folder / ".run.unfinished").mkdir()
        (folder / ".run.unfinished/states-0.safetensors").write_bytes(now)

    def judge(answer: Answer, folder: Path) -> str | None:
        return difference(numbers(answer.results[-1]), place.expected_of_texts)

    arguments = (
        "look",
        place.model(),
        "-c",
        place.texts,
        "-l",
        "weights",
        "--dtype",
        "float64",
        "--batch-tokens",
        "8",
        "-o",
        "@/run",
        "--resume",
    )
    return Case(f"kept states, {len(now)} bytes now", arguments, prepare=prepare, judge=judge)
