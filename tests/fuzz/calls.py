"""The functions of Python: wrong types, shapes, labels, masks; and right ones in other forms, for the same numbers."""

import operator
import tempfile
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from beartype.door import is_bearable
from hypothesis import strategies as st
from tiny import EXAMPLES, TEXTS
from torch import Tensor
from transformers import DynamicCache

import lorgnette as lo
from fuzz.function import CORPUS, HEAD, MODEL, Function
from fuzz.methods import methods
from fuzz.place import Place
from fuzz.trial import Call

SOME = list(TEXTS[:3])
Numbers = dict[str, np.ndarray]


def cases(place: Place) -> st.SearchStrategy[Call]:
    return st.one_of(_wrong_argument(place), _wrong_argument(place), _wrong_tensor(place), _other_form(place),
                     _own_passes(place), _labels(place), _any_corpus(place))  # fmt: skip


# --- one argument of a right call is replaced -------------------------------------------------------------------------


class Odd:
    """Something of the user's own."""

    def __repr__(self) -> str:
        return "Odd()"


ODD: tuple[Any, ...] = (
    None, True, 0, -1, 3, 10**12, 1.5, float("nan"), "", "x", "the cat", "1.2", b"x", [], ["x"], [0], [None], [[1]], (),
    ("a", "b"), {}, {"x": 1}, {"text": "a"}, set(), {"a"}, object, Odd(), np.int64(1), np.float64(0.5), np.zeros(3),
    np.array(["a"]), torch.tensor(1), torch.zeros(2, 3), torch.ones(1, 4, dtype=torch.long), Path("x"), range(3), len,
)  # fmt: skip


@cache
def functions(place: Place) -> dict[str, Function]:
    subject = place.subjects["bert"]
    inputs = dict(subject.tokenizer(SOME, padding=True, return_tensors="pt"))
    return {
        **_of_passes(subject, inputs), **_of_interventions(subject.model, inputs), **_of_texts(subject),
        **_of_subjects(place, subject), **_of_prompts(place), **_of_results(subject), **_of_pictures(place),
        **methods(place),
    }  # fmt: skip


def _of_passes(subject: lo.Subject, inputs: dict[str, Tensor]) -> dict[str, Function]:
    """Functions that run a model on tensors, or look on while it runs."""
    model, tokenizer = subject.model, subject.tokenizer

    def watched(model: Any, lens: Any, batch: Any) -> Any:
        with lo.watch(model, lens, batch=batch), torch.no_grad():
            subject.model(**inputs)
        return lens.compute()

    def seen(**given: Any) -> Any:
        rest = {name: value for name, value in given.items() if name != "model"}
        return lo.attention(given["model"], **rest)

    return {
        "attention": Function(
            seen,
            {"model": model, "layers": None, "heads": None, "rows": None, "parts": ["weights"], **inputs},
            {"model": MODEL, "layers": ("layer",), "heads": ("head",), "rows": ("row",),
             "parts": ("part", "pass"), **{name: (name,) for name in inputs}},
            lo.attention,
        ),
        "batch": Function(
            lo.batch,
            {"inputs": inputs, "tokenizer": tokenizer, "words": None, "word_ids": None, "tokens": None, "parts": None,
             "labels": [0, 1, 0], "ids": ["a", "b", "c"]},
            {"inputs": ("inputs",), "tokenizer": ("tokenizer",), "words": ("words",), "word_ids": ("word_ids",),
             "tokens": ("tokens",), "parts": ("part",), "labels": ("label",), "ids": ("ids",)},
            lo.batch,
        ),
        "watch": Function(
            watched,
            {"model": model, "lens": lo.lens.get("weights"), "batch": lo.batch(inputs, tokenizer)},
            {"model": MODEL, "lens": ("lens",), "batch": ("batch",)},
            lo.watch,
        ),
        "calls": Function(
            lambda **given: lo.calls(**given).look("weights")["weights"],
            {"query": torch.rand(2, 1, 4, 9, 8), "key": torch.rand(2, 1, 2, 9, 8), "value": None, "causal": True,
             "mask": None, "scale": None, "window": None, "softcap": None, "sinks": None, "bias": None,
             "residual": None, "layers": None, "batch": None, "model": None, "tokenizer": None, "name": "x"},
            {"batch": ("batch",), "model": MODEL},
            lo.calls,
        ),
        "views": Function(
            lo.views, {"attentions": torch.rand(2, 2, 3, 3).softmax(-1), "tokens": ["a", "b", "c"]},
            {"attentions": ("weights",), "tokens": ("token", "position")}, lo.views,
        ),
    }  # fmt: skip


def _of_interventions(model: torch.nn.Module, inputs: dict[str, Tensor]) -> dict[str, Function]:
    """Functions that change what heads add."""
    other = lo.attention(model, parts=["context"], **inputs)

    def inside(manager: Callable[..., Any]) -> Callable[..., Any]:
        def entered(*given: Any, **options: Any) -> Any:
            with manager(*given, **options), torch.no_grad():
                return model(**inputs).logits

        return entered

    return {
        "without": Function(inside(lo.without), {"model": model, "heads": ["1.2"]},
                            {"model": MODEL, "heads": HEAD}, lo.without),
        "scaled": Function(inside(lo.scaled), {"model": model, "factors": {"1.2": 0.5}},
                           {"model": MODEL, "factors": (*HEAD, "factors")}, lo.scaled),
        "patched": Function(
            inside(lo.patched), {"model": model, "from_": other, "heads": ["1.2"], "positions": [0]},
            {"model": MODEL, "from_": ("pass", "from_"), "heads": HEAD, "positions": ("position",)}, lo.patched,
        ),
        "effect": Function(
            lo.effect,
            {"model": model, "inputs": inputs, "without": ["1.2"], "scaled": None, "patched": None, "positions": None},
            {"model": MODEL, "inputs": ("inputs",), "without": (*HEAD, "compare"), "scaled": (*HEAD, "factors"),
             "patched": ("patched", "pass", *HEAD), "positions": ("position",)},
            lo.effect,
        ),
        "gradient_effects": Function(
            lo.gradient_effects, {"model": model, "inputs": inputs, "from_": None, "metric": None},
            {"model": MODEL, "inputs": ("inputs",), "from_": ("pass", "from_"), "metric": ("metric",)},
            lo.gradient_effects,
        ),
    }  # fmt: skip


def _of_texts(subject: lo.Subject) -> dict[str, Function]:
    """Functions that read texts, and what was found in them."""
    found = lo.look(subject, SOME, "weights", progress=False)
    return {
        "explain": Function(
            lo.explain,
            {"subject": subject, "batch": SOME, "method": "gradient_x_input", "target": None, "steps": None,
             "biases": False},
            {"subject": MODEL, "batch": CORPUS, "method": ("method",), "target": ("target", "class", "causal"),
             "steps": ("steps",), "biases": ("biases",)},
            lo.explain,
        ),
        "look": Function(
            lo.look,
            {"subject": subject, "corpus": SOME, "lenses": "weights", "batch_tokens": 64, "truncate": False,
             "progress": False, "labels": None, "keep": None, "seed": None, "command": None},
            {"subject": MODEL, "corpus": CORPUS, "lenses": ("lens",), "batch_tokens": ("batch_tokens",),
             "labels": ("label",), "keep": ("keep",), "seed": ("seed",), "command": ("command",)},
            lo.look,
        ),
        "corpus": Function(
            lambda **given: list(lo.corpus(given.pop("name_or_path"), **given)),
            {"name_or_path": SOME, "split": None, "text_column": "text", "label_column": None, "limit": 2},
            {"name_or_path": CORPUS, "split": ("split",), "text_column": ("column",), "label_column": ("column",),
             "limit": ("limit",)},
            lo.corpus,
        ),
        "encode": Function(subject.encode, {"examples": SOME, "truncate": False},
                           {"examples": CORPUS}, lo.Subject.encode),
        "Example": Function(
            lo.Example, {"id": "1", "text": "a b", "pair": None, "words": ("a", "b"), "label": 1,
                         "rationale": (0.0, 1.0), "heads": (0, 1), "relations": ("root", "x"), "tags": {},
                         "target": None, "extra": {}},
            {name: (name, "values of") for name in ("text", "pair", "words", "label", "rationale", "heads", "relations",
                                                    "tags", "target", "extra")},
            lo.Example.__init__,
        ),
        "chat": Function(lo.chat, {"messages": [{"role": "user", "content": "a"}]}, {"messages": ("chat", "message")},
                         lo.chat),
        "LensCallback": Function(
            lo.LensCallback, {"lenses": ["weights"], "corpus": SOME, "every": 10},
            {"lenses": ("lens",), "corpus": CORPUS, "every": ("every",)}, lo.LensCallback.__init__,
        ),
        "compare": Function(lo.compare, {"before": found, "after": found},
                            {"before": ("run", "result", "folder"), "after": ("run", "result", "folder")}, lo.compare),
    }  # fmt: skip


def _of_subjects(place: Place, subject: lo.Subject) -> dict[str, Function]:
    """Functions that make a subject, its own, and those that find a lens."""
    model, tokenizer, decoder = subject.model, subject.tokenizer, place.subjects["gpt2"]
    return {
        "Subject": Function(lo.Subject, {"model": model, "tokenizer": tokenizer, "name": "x"},
                            {"model": MODEL, "tokenizer": ("tokenizer",), "name": ("name",)},
                            lo.Subject.__init__),
        "load": Function(lo.load, {"name": place.model(), "dtype": None, "device": None, "adapter": None},
                         {"name": ("load", "model", "name"), "dtype": ("dtype",), "device": ("device",),
                          "adapter": ("adapter",)}, lo.load),
        "trace": Function(
            subject.trace, {"text": SOME[0], "pair": None, "target": None, "without": ()},
            {"text": ("text",), "pair": ("pair", "text"), "target": ("target", "translation"), "without": HEAD},
            lo.Subject.trace,
        ),
        "trace of a decoder": Function(
            decoder.trace, {"text": SOME[0], "generate": 2},
            {"text": ("text", "prompt"), "generate": ("generat", "token")},
            lo.Subject.trace,
        ),
        "lens.get": Function(lo.lens.get, {"name": "weights"}, {"name": ("lens",)}, lo.lens.get),
    }  # fmt: skip


def _of_prompts(place: Place) -> dict[str, Function]:
    """Functions about what a language model says."""
    decoder, prompt = place.subjects["gpt2"], lo.prompt(instruction=SOME[0], doc=SOME[1])
    generation: dict[str, Any] = {"tokens": 2, "temperature": 0.5, "top_k": 3, "top_p": 0.9, "seed": 0}

    def said(**given: Any) -> Any:
        return decoder.trace(SOME[0], generate=lo.Generation(**given))

    def explained(**given: Any) -> Any:
        return lo.explain(decoder, [SOME[0]], "gradient_x_input", lo.Next(**given))

    return {
        "prompt": Function(
            lambda **given: lo.prompt(given["parts"], separator=given["separator"]),
            {"parts": {"doc": "a b", "question": "c"}, "separator": " "},
            {"parts": ("part", "prompt"), "separator": ("separator",)},
            lo.prompt,
        ),
        "sources": Function(
            lo.sources,
            {"subject": decoder, "prompt": prompt, "answer": SOME[2], "among": None, "method": "gradient_x_input"},
            {"subject": MODEL, "prompt": ("prompt", "part", "message"), "answer": ("answer",),
             "among": ("among", "part"), "method": ("method",)},
            lo.sources,
        ),
        "logit_lens": Function(
            lo.logit_lens, {"subject": decoder, "text": SOME[0], "target": None},
            {"subject": MODEL, "text": ("text",), "target": ("target", "translation")}, lo.logit_lens,
        ),
        "align": Function(
            lo.align, {"subject": place.subjects["marian"], "corpus": EXAMPLES, "test": EXAMPLES, "gold": None,
                       "test_gold": None, "first": 0, "development": 0.5, "most": 2, "progress": False},
            {"subject": MODEL, "corpus": CORPUS, "test": CORPUS, "gold": ("gold", "align", "file"),
             "test_gold": ("gold", "align", "file")},
            lo.align,
        ),
        "stream": Function(
            lo.stream, {"subject": decoder, "corpus": list(TEXTS), "loss": 0.01, "sinks": 1, "window": 2, "draws": 1,
                        "development": 0.5, "seed": 0, "truncate": False, "progress": False},
            {"subject": MODEL, "corpus": CORPUS}, lo.stream,
        ),
        "paths": Function(
            lo.paths,
            {"subject": decoder, "text": SOME[0], "target": None, "against": None, "count": 3, "among": "all"},
            {"subject": MODEL, "text": ("text",), "target": ("target", "token", "class"),
             "against": ("against", "text", "token"), "count": ("count",), "among": ("among",)},
            lo.paths,
        ),
        "why": Function(
            lo.why, {"subject": decoder, "text": SOME[0], "head": "2.1", "query": -1, "key": 0, "pair": None,
                     "target": None},
            {"subject": MODEL, "text": ("text",), "head": (*HEAD, "layer"), "query": ("query",), "key": ("key",),
             "pair": ("pair", "text"), "target": ("target", "translation")},
            lo.why,
        ),
        "Generation": Function(said, generation, {name: (name,) for name in generation} | {"tokens": ("token",)},
                               lo.Generation.__init__),
        "Next": Function(explained, {"piece": 5, "instead_of": 6, "at": None},
                         {"piece": ("piece", "token", "vocabulary"), "instead_of": ("piece", "token", "vocabulary"),
                          "at": ("place", "token", "at ")}, lo.Next.__init__),
    }  # fmt: skip


def _of_results(subject: lo.Subject) -> dict[str, Function]:
    """Functions that put results together or write them, and those that take heads away."""
    found = lo.look(subject, SOME, "weights", progress=False)
    parts = [lo.look(subject, SOME, "weights", shard=(number, 2), progress=False) for number in (1, 2)]

    def without(**given: Any) -> Any:
        made = lo.remove_heads(**given)
        return lo.look(lo.Subject(made, subject.tokenizer), SOME, "weights", progress=False)

    def written(**given: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            return [path.name for path in lo.report(out=Path(folder) / "page.html", **given)]

    return {
        "merge": Function(lo.merge, {"parts": parts, "subject": subject, "lenses": "weights", "command": None},
                          {"parts": ("shard", "part"), "subject": MODEL, "lenses": ("lens",), "command": ("command",)},
                          lo.merge),
        "report": Function(
            written, {"run": found, "figures": None, "width": None, "figure": None, "title": None},
            {"run": ("run", "result", "folder"), "figures": ("figure", "format"), "width": ("width",),
             "figure": ("figure",), "title": ("title",)},
            lo.report,
        ),
        "remove_heads": Function(without, {"model": subject.model, "heads": ["1.2"], "factors": None},
                                 {"model": MODEL, "heads": HEAD, "factors": ("factor", *HEAD)}, lo.remove_heads),
    }  # fmt: skip


def _of_pictures(place: Place) -> dict[str, Function]:
    """Functions that hide patches of a picture."""
    subject, examples = place.seeing
    batch = subject.encode(examples)
    odds: dict[str, Any] = {"shares": (0.5,), "draws": 1, "seed": 0}
    scores = torch.rand(batch.source.mask.shape)
    names = {"shares": ("shares",), "draws": ("draws",), "seed": ("seed",)}
    return {
        "patch_falls": Function(lo.patch_falls, {"subject": subject, "batch": batch},
                                {"subject": MODEL, "batch": ("batch",)}, lo.patch_falls),
        "patch_deletion": Function(
            lo.patch_deletion, {"subject": subject, "batch": batch, "scores": scores, **odds},
            {"subject": MODEL, "batch": ("batch",), "scores": ("scores",), **names}, lo.patch_deletion,
        ),
        "patch_test": Function(
            lo.patch_test, {"subject": subject, "corpus": examples, "method": "gradient_x_input", **odds},
            {"subject": MODEL, "corpus": (*CORPUS, "picture"), "method": ("method",), **names}, lo.patch_test,
        ),
    }  # fmt: skip


def every_argument(place: Place) -> Iterator[Call]:
    """Every argument of every function with every odd value."""
    for name, function in functions(place).items():
        for argument in function.right:
            yield from (wrong(function, name, argument, value) for value in ODD)


def _fits(function: Function, argument: str, value: Any) -> bool:
    """Whether the annotation of the argument allows the value; True where nothing is known."""
    if argument in ("id", "ids"):  # a number becomes a name
        return True
    if argument == "target" and value == [0]:  # a list with a class for each text, as a tensor would be
        return True
    if function.names.get(argument) == CORPUS and isinstance(value, np.ndarray) and value.dtype.kind == "U":
        return True  # whoever reads a corpus takes an array of strings as well
    with suppress(TypeError, ValueError):
        value = operator.index(value)  # a whole number of NumPy or torch is one
    try:
        hint = typing.get_type_hints(function.of, include_extras=True).get(argument, Any)
        return bool(is_bearable(value, hint)) or (isinstance(value, int) and bool(is_bearable(float(value), hint)))
    except Exception:
        return True


@st.composite
def _wrong_argument(draw: st.DrawFn, place: Place) -> Call:
    known = functions(place)
    name = draw(st.sampled_from(sorted(known)))
    argument = draw(st.sampled_from(sorted(known[name].right)))
    return wrong(known[name], name, argument, ODD[draw(st.integers(0, len(ODD) - 1))])


def wrong(function: Function, name: str, argument: str, value: Any) -> Call:
    """The call with one argument replaced; wrong is an answer that the argument changed though it cannot be right."""

    def call() -> Any:
        return function.call(**{**function.right, argument: value})

    def judge(answer: Any) -> str | None:
        if _fits(function, argument, value):
            return None
        expected = _plain(function.call(**function.right))
        return None if _same(_plain(answer), expected) else f"{argument}={value!r} was taken, with another answer"

    return Call(f"lo.{name}(…, {argument}={value!r})", call, function.names.get(argument, (argument,)), judge)


def _plain(answer: Any) -> Any:
    """An answer as numbers, or as text where it has none."""
    if isinstance(answer, Tensor):
        return answer.detach().numpy()
    if isinstance(answer, lo.Results):
        return {f"{key}.{n}": v.values for key, one in answer.items() for n, v in one.data.data_vars.items()}
    if isinstance(answer, lo.Result):
        return {str(n): v.values for n, v in answer.data.data_vars.items()}
    for part in ("tokens", "after", "values"):
        if isinstance(getattr(answer, part, None), Tensor | np.ndarray):
            return np.asarray(getattr(answer, part))
    if isinstance(answer, lo.Attention | lo.Trace):
        return answer["weights"].detach().numpy()
    if isinstance(answer, lo.Batch):
        kinds = {str(name): flags.numpy() for name, flags in answer.source.categories.items()}
        return {**kinds, "words": repr((answer.source.words, answer.examples))}
    return repr(answer) if " at 0x" not in repr(answer) else type(answer).__name__


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return isinstance(found, dict) and found.keys() == expected.keys() and all(
            _same(found[key], expected[key]) for key in expected
        )  # fmt: skip
    if isinstance(expected, np.ndarray) and expected.dtype.kind in "fiub":
        return np.shape(found) == expected.shape and np.allclose(found, expected, rtol=1e-6, atol=1e-9, equal_nan=True)
    return bool(np.all(found == expected))


# --- tensors: other shapes, types, masks; the same in another form ----------------------------------------------------

BARE = ("attention", "batch", "effect", "gradient_effects", "watch", "explain")


def _padded(place: Place, side: str) -> dict[str, Tensor]:
    """Inputs of the decoder, with the positions that each token has in its text."""
    tokenizer = place.subjects["gpt2"].tokenizer
    rows = [tokenizer(text)["input_ids"] for text in SOME]
    wide = max(map(len, rows)) + 1
    ids, mask = torch.zeros(len(rows), wide, dtype=torch.long), torch.zeros(len(rows), wide, dtype=torch.long)
    for number, row in enumerate(rows):
        where = slice(wide - len(row), wide) if side == "left" else slice(0, len(row))
        ids[number, where], mask[number, where] = torch.tensor(row), 1
    return {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}


def _ran(place: Place, function: str, inputs: dict[str, Any]) -> Numbers:
    """The numbers of a function over these inputs that do not depend on padding."""
    subject = place.subjects["gpt2"]
    if function == "attention":
        with torch.no_grad():
            seen = lo.attention(subject, parts=["weights"], **inputs)["weights"]
        real = lo.batch(inputs).source.mask
        rows = [seen[:, n][:, :, where][..., where].numpy() for n, where in enumerate(real)]
        return {str(number): row for number, row in enumerate(rows)}
    if function == "effect":
        return {"divergence": np.array(lo.effect(subject, inputs, without=["1.2"]).divergence)}
    if function == "gradient_effects":
        return {"effects": lo.gradient_effects(subject, inputs).values}
    batch = lo.batch(inputs, subject.tokenizer)
    if function == "batch":
        kinds = {name: flags.sum(-1).numpy() for name, flags in batch.source.categories.items()}
        return {**kinds, "lengths": batch.lengths.numpy()}
    if function == "explain":
        made = lo.explain(subject, batch, "gradient_x_input")
        rows = [row[real].detach().numpy() for row, real in zip(made.tokens, batch.source.mask, strict=True)]
        return {str(number): row for number, row in enumerate(rows)} | {"start": made.start.detach().numpy()}
    lens = lo.lens.get("weights")
    with lo.watch(subject, lens, batch=batch), torch.no_grad():
        _own_pass(subject.model, batch.inputs)
    return {str(name): value.values for name, value in lens.compute().data.data_vars.items()}


def _own_pass(model: torch.nn.Module, inputs: dict[str, Tensor]) -> None:
    """The pass that is the user's own: what the model says of its inputs there is not ours to say."""
    try:
        model(**inputs)
    except (RuntimeError, ValueError, IndexError) as error:
        raise lo.UserError("the model itself refuses these inputs") from error


@cache
def _expected(place: Place, function: str) -> Numbers:
    return _ran(place, function, _padded(place, "right"))


FORMS: dict[str, Callable[[Tensor], Any]] = {
    "as it is": lambda tensor: tensor,
    "array": lambda tensor: tensor.numpy(),
    "list": lambda tensor: tensor.tolist(),
    "int32": lambda tensor: tensor.int(),
    "bool": lambda tensor: tensor.bool(),
    "float": lambda tensor: tensor.float(),
    "three dimensions": lambda tensor: tensor[:, None].expand(-1, tensor.shape[1], -1),
    "four dimensions": lambda tensor: tensor[:, None, None].bool() & _causal(tensor.shape[1]),
    "added": lambda tensor: torch.where(tensor[:, None, None].bool() & _causal(tensor.shape[1]), 0.0, -1e38).double(),
}


def _causal(size: int) -> Tensor:
    return torch.ones(size, size, dtype=torch.bool).tril()


@st.composite
def _other_form(draw: st.DrawFn, place: Place) -> Call:
    """Padding on either side, ids and masks as arrays, lists and other types: the same numbers, or one line."""
    function, side = draw(st.sampled_from(BARE)), draw(st.sampled_from(("left", "right")))
    ids = draw(st.sampled_from(("as it is", "array", "list", "int32")))
    mask = draw(st.sampled_from(sorted(FORMS)))
    inputs: dict[str, Any] = _padded(place, side)
    inputs["input_ids"] = FORMS[ids](inputs["input_ids"])
    inputs["attention_mask"] = FORMS[mask](inputs["attention_mask"])

    def judge(found: Numbers) -> str | None:
        expected = _expected(place, function)
        wrong = [key for key in expected if not _same(found.get(key), expected[key])]
        return f"other numbers: {wrong[:3]}" if wrong else None

    what = f"{function}, padding on the {side}, ids {ids}, mask {mask}"
    return Call(what, lambda: _ran(place, function, inputs), ("mask", "input_ids", "inputs"), judge)


def _damages(tensor: Tensor) -> dict[str, Any]:
    return {
        "empty": tensor[:0], "no tokens": tensor[:, :0], "one text": tensor[0], "one axis more": tensor[None],
        "short": tensor[:, :-1], "fewer texts": tensor[:1], "negative": tensor - 5, "large": tensor + 10**6,
        "float": tensor.double() + 0.5, "nan": tensor.double() * float("nan"),
        "twice": tensor * 2 if tensor.max() == 1 else tensor[:, :0],
        "ragged": [[1, 2], [3]], "strings": [["a"]], "text": "the cat", "none": None,
        "complex": tensor.to(torch.complex64), "long": tensor.repeat(1, 30), "object": np.array([None, 1]),
        "zeros": tensor * 0 if tensor.max() == 1 else tensor[:, :0], "elsewhere": tensor.to("meta"), "number": 7,
        "nothing": [],
    }  # fmt: skip


@st.composite
def _wrong_tensor(draw: st.DrawFn, place: Place) -> Call:
    """Ids, masks and positions of wrong shapes and values."""
    function = draw(st.sampled_from(BARE))
    whole: dict[str, Any] = _padded(place, draw(st.sampled_from(("left", "right"))))
    name = draw(st.sampled_from(sorted(whole)))
    how = draw(st.sampled_from(sorted(_damages(whole[name]))))
    inputs = {**whole, name: _damages(whole[name])[how]}
    if draw(st.integers(0, 9)) == 0:
        how, inputs = "missing", {key: value for key, value in whole.items() if key != name}

    def judge(found: Numbers) -> str | None:
        if name == "position_ids":  # the model reads them as it likes; they decide nothing of ours
            return None
        same = all(_same(found.get(key), value) for key, value in _expected(place, function).items())
        return None if same else f"an answer from {name} that are wrong ({how})"

    return Call(f"{function}, {name}: {how}", lambda: _ran(place, function, inputs),
                ("input_ids", "mask", "position_ids", "inputs"), judge)  # fmt: skip


# --- lo.watch: the pass that the user runs ----------------------------------------------------------------------------

PASSES: dict[str, Callable[[Any, dict[str, Tensor]], Any]] = {
    "as it is": lambda model, inputs: model(**inputs),
    "positional": lambda model, inputs: model(*inputs.values()),
    "vectors": lambda model, inputs: model(
        inputs_embeds=model.get_input_embeddings()(inputs["input_ids"]),
        **{name: tensor for name, tensor in inputs.items() if name != "input_ids"},
    ),
    "other ids": lambda model, inputs: model(**{**inputs, "input_ids": inputs["input_ids"].flip(0)}),
    "one other id": lambda model, inputs: model(
        **{**inputs, "input_ids": inputs["input_ids"].clone().index_fill(1, torch.tensor([3]), 7)}
    ),
    "no mask": lambda model, inputs: model(inputs["input_ids"]),
    "all tokens": lambda model, inputs: model(
        **{**inputs, "attention_mask": torch.ones_like(inputs["attention_mask"])}
    ),
    "fewer texts": lambda model, inputs: model(**{name: tensor[:1] for name, tensor in inputs.items()}),
    "more texts": lambda model, inputs: model(**{name: tensor.repeat(2, 1) for name, tensor in inputs.items()}),
    "shorter": lambda model, inputs: model(**{name: tensor[:, 1:] for name, tensor in inputs.items()}),
    "twice": lambda model, inputs: [model(**inputs), model(**inputs)],
    "generate": lambda model, inputs: model.generate(
        **inputs, max_new_tokens=2, min_new_tokens=2, do_sample=False, pad_token_id=0
    ),
    "from a cache": lambda model, inputs: model(
        **inputs, past_key_values=_cached(model, inputs["input_ids"][:, :2])
    ),
    "none": lambda model, inputs: None,
}  # fmt: skip
SAME_PASS = ("as it is", "positional", "vectors")


def _cached(model: Any, ids: Tensor) -> Any:
    cache = DynamicCache(config=model.config)
    for layer in range(model.config.num_hidden_layers):
        wide = model.config.hidden_size // model.config.num_attention_heads
        states = torch.rand(len(ids), model.config.num_attention_heads, ids.shape[1], wide)
        cache.update(states, states, layer)
    return cache


@st.composite
def _own_passes(draw: st.DrawFn, place: Place) -> Call:
    """What the user runs in `lo.watch` instead of the pass of the batch: the same numbers, or one line."""
    how, side = draw(st.sampled_from(sorted(PASSES))), draw(st.sampled_from(("left", "right")))
    words, before = draw(st.booleans()), draw(st.booleans())
    inputs, subject = _padded(place, side), place.subjects["gpt2"]
    inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    inputs |= {"position_ids": _padded(place, side)["position_ids"]} if how not in ("positional", "generate") else {}

    def call() -> Numbers:
        batch = lo.batch(inputs, subject.tokenizer if words else None)
        if before:  # a batch that was used before remembers what lenses asked it
            _watched(subject, batch, lambda: PASSES["as it is"](subject.model, inputs))
        return _watched(subject, batch, lambda: PASSES[how](subject.model, inputs))

    def judge(found: Numbers) -> str | None:
        if how not in SAME_PASS:
            return f"the pass {how!r} was taken"
        plain = _watched(subject, lo.batch(inputs, subject.tokenizer if words else None),
                         lambda: PASSES["as it is"](subject.model, inputs))  # fmt: skip
        return None if _same(found, plain) else "other numbers"

    what = f"watch of the pass {how}, padding on the {side}, words {words}, used before {before}"
    return Call(what, call, ("of the pass", "the pass has no", "one pass", "past_key_values"), judge)


def _watched(subject: lo.Subject, batch: lo.Batch, run: Callable[[], Any]) -> Numbers:
    lens = lo.lens.get("weights")
    with lo.watch(subject, lens, batch=batch), torch.no_grad():
        run()
    return _plain(lens.compute())


# --- labels and corpora -----------------------------------------------------------------------------------------------

LABELLED = ("importance", "gradients", "relevance", "cones", "effects", "agreement")
LABELS: dict[str, tuple[Any, int | None]] = {
    "int": (1, 1), "numpy": (np.int64(1), 1), "uint8": (np.uint8(1), 1), "torch": (torch.tensor(1), 1),
    "bool": (True, 1), "text": ("1", None), "float": (1.0, None), "numpy float": (np.float64(1), None),
    "name": ("positive", None),
    "minus": (-1, None), "ignored": (-100, None), "beyond": (2, None), "far": (10**9, None), "list": ([1], None),
    "nan": (float("nan"), None),
}  # fmt: skip
OF_OTHER_CLASSES = ("beyond", "far")
"""Labels of some other task: a lens that reads no labels does not mind."""


@cache
def _labelled(place: Place, lens: str) -> Numbers:
    return _looked(place, lens, 1)


def _looked(place: Place, lens: str, label: Any) -> Numbers:
    texts = [lo.Example(str(n), text, label=label if n == 1 else n % 2) for n, text in enumerate(TEXTS)]
    return _plain(lo.look(place.subjects["bert"], texts, lens, progress=False))


@st.composite
def _labels(draw: st.DrawFn, place: Place) -> Call:
    lens, how = draw(st.sampled_from(LABELLED)), draw(st.sampled_from(sorted(LABELS)))
    label, means = LABELS[how]

    def judge(found: Numbers) -> str | None:
        if means is None and not (how in OF_OTHER_CLASSES and "labels" not in lo.lens.get(lens).reads):
            return f"a label {label!r} was taken"
        return None if _same(found, _labelled(place, lens)) else "other numbers"

    return Call(f"{lens}, label {label!r}", lambda: _looked(place, lens, label), ("label",), judge)


CORPORA: dict[str, Callable[[list[str]], Any]] = {
    "list": lambda texts: texts,
    "tuple": tuple,
    "iterator": iter,
    "examples": lambda texts: [lo.Example(str(n), text) for n, text in enumerate(texts)],
    "rows": lambda texts: [{"text": text, "n": n} for n, text in enumerate(texts)],
    "columns": lambda texts: {"text": texts, "n": list(range(len(texts)))},
    "frame": lambda texts: pd.DataFrame({"text": texts, "n": 1}),
    "frame by number": lambda texts: pd.DataFrame({"text": texts}, index=range(5, 5 + len(texts))),
    "series": pd.Series,
    "array": np.array,
    "corpus": lo.corpus,
    "other column": lambda texts: pd.DataFrame({"sentence": texts}),
    "missing": lambda texts: pd.DataFrame({"text": [None, *texts]}),
    "not a number": lambda texts: [*texts, float("nan")],
    "numbers": lambda texts: list(range(len(texts))),
    "bytes": lambda texts: [text.encode() for text in texts],
    "nested": lambda texts: [texts],
    "nothing": lambda texts: [],
    "one text": lambda texts: texts[0],
    "one example": lambda texts: lo.Example("1", texts[0]),
    "ragged columns": lambda texts: {"text": texts, "n": [1]},
    "text of a row": lambda texts: {"text": texts[0]},
    "chats": lambda texts: [[{"role": "user", "content": text}] for text in texts],
    "pairs": lambda texts: [(text, text) for text in texts],
}
RIGHT = (
    "list",
    "tuple",
    "iterator",
    "examples",
    "rows",
    "columns",
    "frame",
    "frame by number",
    "series",
    "array",
    "corpus",
)


@cache
def _texts_expected(place: Place, reader: str) -> Any:
    return _read(place, reader, SOME)


def _read(place: Place, reader: str, texts: Any) -> Any:
    subject = place.subjects["bert"]
    if reader == "look":
        return _plain(lo.look(subject, texts, "weights", progress=False))
    if reader == "explain":
        return _plain(lo.explain(subject, texts, "gradient_x_input"))
    if reader == "encode":
        return subject.encode(texts).inputs["input_ids"].numpy()
    return [getattr(one, "text", one) for one in lo.LensCallback(["weights"], texts).corpus]


@st.composite
def _any_corpus(draw: st.DrawFn, place: Place) -> Call:
    reader, form = (
        draw(st.sampled_from(("look", "explain", "encode", "callback"))),
        draw(st.sampled_from(sorted(CORPORA))),
    )

    def judge(found: Any) -> str | None:
        if form not in RIGHT:
            one = form in ("one text", "one example") and reader == "explain"  # which takes one text as well
            return None if one else f"{form} was read as a corpus"
        return None if _same(found, _texts_expected(place, reader)) else "other numbers"

    names = ("corpus", "text", "column", "split", "string")
    return Call(f"{reader}, {form}", lambda: _read(place, reader, CORPORA[form](list(SOME))), names, judge)
