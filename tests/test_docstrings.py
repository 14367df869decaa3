"""Every public name says what it is, with an example that runs."""

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest
import torch
from tiny import classifier, gpt2
from tiny import subject as translation_model

import lorgnette as lo

# Names that are no functions or classes of their own, or that only say what went wrong.
WITHOUT_EXAMPLE = {"__version__", "lens", "UserError", "CaptureError"}
REFERENCE = "".join(page.read_text() for page in (Path(__file__).parents[1] / "docs/reference/api").glob("*.md"))
LISTED = sorted(set(re.findall(r"auto(?:function|class):: (lorgnette\.\S+)", REFERENCE)))
"""Every function and class in the reference of the site."""
TEXTS = ["the cat sat on the mat .", "a dog ran , and it was good !"]


@pytest.fixture(scope="module")
def world():
    """What the examples speak of: a small random classifier, two texts as tensors, and a look at them."""
    torch.manual_seed(0)
    subject = classifier()
    inputs = subject.tokenizer(TEXTS, padding=True, return_tensors="pt")
    results = lo.look(subject, TEXTS, ["weights"], progress=False)
    translator = translation_model("marian")
    aligned = [lo.Example(str(n), "the cat", target="a dog", extra={"alignment": "0-0 1-1"}) for n in range(9)]
    return {
        "lo": lo, "torch": torch, "subject": subject, "model": subject.model, "tokenizer": subject.tokenizer,
        "translator": translator, "aligned": aligned, "aligner": lo.align(translator, aligned, progress=False),
        "streaming": lo.stream(gpt2(), ["the cat sat on the mat ."] * 9, sinks=1, window=2, progress=False),
        "texts": TEXTS, "inputs": dict(inputs), "results": results, "language_model": gpt2(),
    }  # fmt: skip


def named(path):
    """What a dotted path of the reference names."""
    module, _, name = path.rpartition(".")
    return getattr(lo if module == "lorgnette" else importlib.import_module(module), name)


def run_examples(thing, name, world):
    """How many examples the docstring has, all of which run."""
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(thing) or "", {**world}, name, None, 0)
    told = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=told.append)
    assert runner.failures == 0, "".join(told)
    return len(test.examples)


@pytest.mark.parametrize(
    "path", sorted({f"lorgnette.{name}" for name in lo.__all__} - {"lorgnette.__version__"} | set(LISTED))
)
def test_a_public_name_has_a_docstring_and_an_example_that_runs(path, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    thing, name = named(path), path.removeprefix("lorgnette.")
    assert (inspect.getdoc(thing) or "").strip()
    assert run_examples(thing, name, world) or name in WITHOUT_EXAMPLE, f"{path} has no example"
    if inspect.isclass(thing):
        for each in vars(thing):
            if not each.startswith("_") or each == "__getitem__":
                run_examples(inspect.getattr_static(thing, each), f"{name}.{each}", world)


@pytest.mark.parametrize("name", sorted(set(lo.__all__) - {"__version__", "lens"}))
def test_methods_that_users_call_have_a_docstring(name):
    thing = getattr(lo, name)
    if not inspect.isclass(thing) or issubclass(thing, Exception):
        return
    own = [each for each, value in vars(thing).items() if not each.startswith("_") and inspect.isfunction(value)]
    bare = [each for each in own if not inspect.getdoc(getattr(thing, each))]
    assert not bare, f"lo.{name}: {', '.join(bare)}"
