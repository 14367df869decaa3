"""The methods of what functions of Python give: traces, results, explanations, corpora, plots."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tiny import EXAMPLES, TEXTS

import lorgnette as lo
from fuzz.function import CORPUS, Function
from fuzz.place import Place

SOME = list(TEXTS[:3])
PATH = ("path", "folder", "file", "write", "saved", "result")
"""Words by which a message may name a place to write to."""


def methods(place: Place) -> dict[str, Function]:
    return {**_of_passes(place), **_of_results(place), **_of_answers(place), **_of_corpora()}


def _of_passes(place: Place) -> dict[str, Function]:
    """A trace and a bare pass, read by name, part, head and stack."""
    subject, decoder = place.subjects["bert"], place.subjects["gpt2"]
    trace = subject.trace(SOME[0])
    prompt = decoder.trace(lo.prompt(doc=SOME[0], question=SOME[1]), generate=1)
    seen = lo.attention(subject.model, **subject.tokenizer(SOME, padding=True, return_tensors="pt"))
    pictured = place.seeing[0].trace(place.seeing[1][0])
    stack, part, name = ("stack",), ("part", "measure", "pass", "name "), ("layer", "head", "no array", "name", "pass")
    at = {"layer": 1, "head": 2, "stack": "encoder", "words": False}
    names = {"layer": ("layer",), "head": ("head",), "stack": stack, "words": ("words",)}
    return {
        "Trace[]": Function(lambda name: trace[name], {"name": "encoder.1.weights"}, {"name": name},
                            lo.Trace.__getitem__),
        "Attention[]": Function(lambda name: seen[name], {"name": "encoder.1.weights"}, {"name": name},
                                lo.Attention.__getitem__),
        "Attention.data": Function(seen.data, {"name": "weights"}, {"name": part}, lo.Attention.data),
        "Trace.data": Function(trace.data, {"part": "weights", "stack": None, "words": False},
                               {"part": part, "stack": stack, "words": ("words",)}, lo.Trace.data),
        "Trace.dataset": Function(trace.dataset, {"stack": None}, {"stack": stack}, lo.Trace.dataset),
        "Trace.by_part": Function(prompt.by_part, {"measure": "weights", "stack": None},
                                  {"measure": part, "stack": stack}, lo.Trace.by_part),
        "Trace.head": Function(trace.head, dict(at), names, lo.Trace.head),
        "Trace.plot": Function(trace.plot, dict(at), names, lo.Trace.plot),
        "Trace.pieces": Function(trace.pieces, {"stack": None}, {"stack": stack}, lo.Trace.pieces),
        "Trace.words": Function(trace.words, {"stack": None}, {"stack": stack}, lo.Trace.words),
        "Trace.tower": Function(pictured.tower, {"table": 0}, {"table": ("table", "tiles")}, lo.Trace.tower),
        "Trace.save": Function(_saving(trace.save), {"path": "a.html"}, {"path": PATH}, lo.Trace.save),
    }  # fmt: skip


def _of_results(place: Place) -> dict[str, Function]:
    found = lo.look(place.subjects["bert"], SOME, "weights", keep="texts", progress=False)
    one = found["weights"]
    lens, variable = ("lens", "result"), ("variable",)
    return {
        "Results[]": Function(lambda name: found[name], {"name": "weights"}, {"name": lens}, lo.Results.__getitem__),
        "Results.texts": Function(found.texts, {"lens": "weights", "variable": "mass"},
                                  {"lens": lens, "variable": variable}, lo.Results.texts),
        "Results.save": Function(_saving(found.save), {"folder": "a"}, {"folder": PATH}, lo.Results.save),
        "Results.load": Function(lo.Results.load, {"folder": place.run}, {"folder": ("folder", "result", "file")},
                                 lo.Results.load),
        "Result.plot": Function(
            one.plot, {"variable": "mass", "category": "first", "layer": 1},
            {"variable": variable, "category": ("category",), "layer": ("layer",)}, lo.Result.plot,
        ),
        "Result.to_dataframe": Function(one.to_dataframe, {"variable": "mass"}, {"variable": variable},
                                        lo.Result.to_dataframe),
        "Result.save": Function(_saving(one.save), {"path": "a.json"}, {"path": PATH}, lo.Result.save),
        "Result.load": Function(lo.Result.load, {"path": place.run / "weights.json"}, {"path": PATH},
                                lo.Result.load),
        "Result.from_json": Function(lo.Result.from_json, {"text": one.to_json()}, {"text": ("text", "json")},
                                     lo.Result.from_json),
        "Plot.save": Function(_saving(one.plot("mass").save), {"path": "a.svg", "width": None},
                              {"path": PATH, "width": ("width",)}, lo.Plot.save),
        "Report.write": Function(_saving(lo.Report(found).write), {"path": "a.html"}, {"path": PATH}, lo.Report.write),
        "Comparison.write": Function(_saving(lo.compare(found, found).write), {"path": "a.html"}, {"path": PATH},
                                     lo.Comparison.write),
        "Shard.open": Function(lo.Shard.open, {"folder": place.run}, {"folder": ("folder", "shard")}, lo.Shard.open),
        "Shard.save": Function(
            _saving(lo.look(place.subjects["bert"], SOME, "weights", shard=(1, 2), progress=False).save),
            {"folder": "a"}, {"folder": PATH}, lo.Shard.save,
        ),
        "Report": Function(
            lambda **given: len(lo.Report(**given).html()), {"results": found, "title": None, "examples": None},
            {"results": ("result", "folder", "run"), "title": ("title",), "examples": ("example",)}, lo.Report.__init__,
        ),
    }  # fmt: skip


def _of_answers(place: Place) -> dict[str, Function]:
    """Explanations, sources, effects and curves."""
    subject, decoder = place.subjects["bert"], place.subjects["gpt2"]
    explained = lo.explain(decoder, SOME[:1], "gradient_x_input")
    used = lo.sources(decoder, lo.prompt(doc=SOME[0], question=SOME[1]), "good", method="gradient_x_input")
    views = lo.views(subject.trace(SOME[0])["encoder.1.weights"][None], subject.trace(SOME[0]).pieces())
    return {
        "Explanation.words": Function(explained.words, {"tokens": None, "target": False},
                                      {"tokens": ("tokens",), "target": ("target",)}, lo.Explanation.words),
        "Explanation.to_dataframe": Function(explained.to_dataframe, {"target": None}, {"target": ("target", "tokens")},
                                             lo.Explanation.to_dataframe),
        "Sources.heads": Function(used.heads, {"signal": "attention", "part": None},
                                  {"signal": ("signal",), "part": ("part",)}, lo.Sources.heads),
        "Sources.save": Function(_saving(used.save), {"path": "a.csv"}, {"path": PATH}, lo.Sources.save),
        "Views.save": Function(_saving(views.save), {"path": "a.html"}, {"path": PATH}, lo.Views.save),
        "Subject.example": Function(
            subject.example, {"text": SOME[0], "pair": None, "target": None, "image": None},
            {"text": ("text",), "pair": ("pair", "text"), "target": ("target",), "image": ("image", "picture")},
            lo.Subject.example,
        ),
        "Subject.check": Function(
            lambda **given: [one.ok for one in subject.check(**given)], {"inputs": None}, {"inputs": ("inputs",)},
            lo.Subject.check,
        ),
    }  # fmt: skip


def _of_corpora() -> dict[str, Function]:
    corpus, rows = lo.corpus(SOME), [{"text": text, "label": 1} for text in SOME]
    return {
        "Corpus.from_dataset": Function(
            lambda dataset, **given: list(lo.Corpus.from_dataset(dataset, **given)),
            {"dataset": rows, "name": "x", "text_column": "text", "label_column": "label"},
            {"dataset": (*CORPUS, "dataset", "Example"), "name": ("name",), "text_column": ("column",),
             "label_column": ("column",)},
            lo.corpus,
        ),
        "Corpus.take": Function(lambda **given: list(corpus.take(**given)), {"n": 2}, {"n": ("take", "text", "n ")},
                                lo.Corpus.take),
        "Corpus.shuffled": Function(lambda **given: list(corpus.shuffled(**given)), {"seed": 1}, {"seed": ("seed",)},
                                    lo.Corpus.shuffled),
        "Corpus.named": Function(lambda **given: corpus.named(**given).name, {"name": "x"}, {"name": ("name",)},
                                 lo.Corpus.named),
        "Corpus.of": Function(
            lambda **given: list(lo.Corpus.of(**given)), {"examples": list(EXAMPLES), "name": "x", "labels": None},
            {"examples": ("example",), "name": ("name",), "labels": ("label",)}, lo.Corpus.of,
        ),
    }  # fmt: skip


def _saving(save: Callable[..., Path]) -> Callable[..., str]:
    """The method with a relative path put below a folder of its own; what it wrote, by its endings."""

    def saved(**given: Any) -> str:
        with tempfile.TemporaryDirectory() as folder:
            argument = "folder" if "folder" in given else "path"
            if isinstance(given[argument], str | Path) and str(given[argument]):
                given = {**given, argument: Path(folder) / given[argument]}
            save(**given)
            return ", ".join(sorted(path.suffix for path in Path(folder).iterdir()))

    return saved
