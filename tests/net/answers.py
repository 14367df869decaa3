"""Every lens on every kind of model: through `look`, `lo.watch`, an interruption, and the pages made from results."""

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from tiny import EXAMPLES, PROMPTS, TREEBANK, bert, classifier, gpt2, marian, own_classifier, subject
from tiny import examples as numbered

import lorgnette as lo
from lorgnette import lens as lenses
from lorgnette.lens.base import Lens
from lorgnette.results.tables import export
from lorgnette.subject import Subject

TREES = ("relations", "trees", "probes", "roles", "attention-probe", "coreference", "rationales")
"""Lenses that read trees, mentions or rationales."""
OPTIONS: dict[str, dict[str, Any]] = {
    "attention-probe": {"steps": 20},
    "probes": {"epochs": 2, "seeds": (0, 1), "hidden": 8},
    "synthetic": {"sequences": 3, "length": 5},
    "gating": {"steps": 1, "seeds": (0,), "batch": 2},
    "context": {"sinks": 1, "windows": (2, 4), "window": 3},
}
VARIANTS = {
    "weights by token": lambda: lenses.get("weights", by="token"),
    "norms with measures": lambda: lenses.get(
        "norms", measures=("alti", "globenc", "value_zeroing"), contribution=True
    ),
    "norms without heads": lambda: lenses.get("norms", all_heads=False, residual=False, sample=0),
    "norms by token": lambda: lenses.get("norms", by="token", sample=40),
    "geometry of words": lambda: lenses.get("geometry", specials=False, least=2, occurrences=20),
    "roles parsed": lambda: lenses.get("roles"),
}
"""Options that take another way through a lens."""
Answers = dict[str, Any]
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\+00:00)?")


def subjects() -> dict[str, Callable[[], Subject]]:
    texts = [example.text for example in TREEBANK]
    made: dict[str, Callable[[], Subject]] = {
        "bert": bert,
        "classifier": classifier,
        "gpt2": gpt2,
        "llama": lambda: subject("llama"),
        "marian": marian,
        "t5": lambda: subject("t5"),
        "pure": lambda: own_classifier("pure-attention", texts),
        "bert32": lambda: bert(torch.float32),
    }
    shelf = os.environ.get("LORGNETTE_MODELS")
    if shelf and (Path(shelf) / "minilm").is_dir():
        made["minilm"] = lambda: lo.load(str(Path(shelf) / "minilm"))
    return made


def texts_for(kind: str, lens: str) -> list[Any]:
    if lens == "sources":
        return list(PROMPTS)
    if kind in ("llama", "t5"):
        return [*numbered(), *numbered(lengths=(7, 3, 15), seed=5)][: 5 if lens in ("synthetic", "gating") else None]
    return list(TREEBANK if lens in TREES or kind == "pure" else EXAMPLES)


def made(name: str) -> Lens:
    return VARIANTS[name]() if name in VARIANTS else lenses.get(name, **OPTIONS.get(name, {}))


def answers(only: str = "") -> Iterator[tuple[str, Any]]:
    """By name, one after the other, what can be written as JSON."""
    for kind, make in subjects().items():
        for name in (*lenses.OURS, *VARIANTS):
            label = f"{kind} {name}"
            if only not in label or (kind == "minilm" and name in ("value_zeroing", "norms with measures")):
                continue
            yield f"look {label}", _looked(make(), texts_for(kind, name), name)
            if kind in ("bert", "llama", "marian"):
                yield f"watch {label}", _watched(make(), texts_for(kind, name), name)
                yield f"resumed {label}", _resumed(make(), texts_for(kind, name), name)
    if only in ("", "pages"):
        yield from _pages()


def numbers(results: Any) -> Answers:
    """Results without what differs from run to run: the command and the folder."""
    out: Answers = {}
    for name, result in results.items():
        told = json.loads(result.to_json())
        told.get("provenance", {}).pop("command", None)
        told.get("provenance", {}).pop("created", None)
        told["data"]["coords"].pop("seconds_per_text", None)
        out[name] = told
    for name in getattr(results, "text_numbers", {}):
        out[f"{name} by text"] = json.loads(results.texts(name).to_json(orient="split", double_precision=15))
    return out


def _looked(model: Subject, texts: list[Any], name: str) -> Answers | str:
    torch.manual_seed(0)
    try:
        return numbers(lo.look(model, texts, [made(name)], progress=False, keep="texts", batch_tokens=24))
    except Exception as error:  # whatever it is, it is the answer
        return f"{type(error).__name__}: {error}"


def _watched(model: Subject, texts: list[Any], name: str) -> Answers | str:
    torch.manual_seed(0)
    lens = made(name)
    try:
        for at in range(0, len(texts), 2):
            batch = model.encode(texts[at : at + 2])
            with lo.watch(model, lens, batch=batch), torch.no_grad():
                model.run(batch, output_hidden_states=True, return_dict=True)
        return numbers({name: lens.compute()})
    except Exception as error:  # whatever it is, it is the answer
        return f"{type(error).__name__}: {error}"


def _resumed(model: Subject, texts: list[Any], name: str) -> Answers | str:
    """One look that Ctrl-C ends after its second batch, and one that goes on from there."""
    with tempfile.TemporaryDirectory() as folder:
        out, passed = Path(folder) / "run", 0

        kind, forward = type(model.model), type(model.model).forward

        @wraps(forward)
        def interrupted(*arguments: Any, **options: Any) -> Any:
            nonlocal passed
            outputs, passed = forward(*arguments, **options), passed + 1
            if passed == 3:
                raise KeyboardInterrupt
            return outputs

        options: Answers = {"progress": False, "out": out, "batch_tokens": 24}
        torch.manual_seed(0)
        try:  # of the class: a hook, or a method of the model itself, would be an edit of the model
            with patch.object(kind, "forward", interrupted):
                found = lo.look(model, texts, [made(name)], **options)
        except KeyboardInterrupt:
            torch.manual_seed(0)
            found = lo.look(model, texts, [made(name)], **options, resume=True)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return numbers(found)


def _pages() -> Iterator[tuple[str, Any]]:
    """The report, the comparison and the tables made from results."""
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for seed in (0, 1):
            runs.append(Path(folder) / f"run{seed}")
            names = ["weights", "norms", "geometry", "rollout", "roles"]
            lo.look(bert(seed=seed), list(EXAMPLES), names, progress=False, keep="texts", out=runs[-1], command="net")
        lo.report(runs[0], Path(folder) / "report.html")
        lo.compare(runs[0], runs[1], out=Path(folder) / "compare.html")
        for page in ("report", "compare"):
            yield page, _TIME.sub("", Path(folder, f"{page}.html").read_text(encoding="utf-8").replace(folder, ""))
        tables = Path(folder) / "tables"
        export(lo.Results.load(runs[0]), tables, "csv")
        for file in sorted(tables.rglob("*.csv")):
            yield f"export {file.name}", file.read_text(encoding="utf-8")
