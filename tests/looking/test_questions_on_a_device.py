"""What people ask of a language model gives the same on a device as on a CPU: on a GPU, `make test-gpu`.

Without one, on a device that is not there, whose tensors refuse the CPU's: it finds what was made in the wrong place.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tiny import EXAMPLES, PROMPTS, classifier, gpt2, marian
from tiny.elsewhere import ELSEWHERE, elsewhere

import lorgnette as lo
from lorgnette.subject import Subject

TEXT = "the cat sat on the mat and the dog ran ."
LONG = [f"{start} cat sat on the mat and the dog ran , and it slept ." for start in ("the", "a", "not", "very", "good")]
EXPLANATIONS = ("chefer2021", "occlusion", "shap", "lime")
Question = tuple[Callable[[torch.dtype], Subject], Callable[[Subject], pd.DataFrame]]


def _explained(method: str, *texts: Any) -> Callable[[Subject], pd.DataFrame]:
    return lambda subject: lo.explain(subject, list(texts), method).to_dataframe()


def _streamed(subject: Subject) -> pd.DataFrame:
    found = lo.stream(subject, [*LONG, TEXT], loss=10.0, sinks=1, window=2, draws=1, progress=False)
    return pd.concat([found.to_dataframe(), found.curve()])


def _aligned(subject: Subject) -> pd.DataFrame:
    return lo.align(subject, EXAMPLES[:3], EXAMPLES[3:], progress=False).to_dataframe()


QUESTIONS: dict[str, Question] = {
    "sources": (gpt2, lambda subject: lo.sources(subject, PROMPTS[0]).to_dataframe()),
    "sources, generated": (
        gpt2,
        lambda subject: lo.sources(subject, {"document": TEXT, "question": "it was"}, generate=2).to_dataframe(),
    ),
    "stream": (gpt2, _streamed),
    "align": (marian, _aligned),
    "why": (gpt2, lambda subject: lo.why(subject, TEXT, "2.1", query=5).to_dataframe()),
    "why, in an encoder": (classifier, lambda subject: lo.why(subject, TEXT, "2.1", query=5, key=1).to_dataframe()),
    "paths": (gpt2, lambda subject: lo.paths(subject, TEXT, count=8).to_dataframe()),
    "paths, against": (
        gpt2,
        lambda subject: lo.paths(subject, TEXT, against=TEXT.replace("cat", "mat"), count=8).to_dataframe(),
    ),
    "lens": (
        gpt2,
        lambda subject: lo.look(subject, PROMPTS, "sources", progress=False)["sources"].to_dataframe("drop"),
    ),
    **{f"{method}, of a class": (classifier, _explained(method, TEXT, "good dog")) for method in EXPLANATIONS},
    **{f"{method}, of a word": (gpt2, _explained(method, TEXT, "dog")) for method in EXPLANATIONS[::2]},
    **{f"{method}, of a translation": (marian, _explained(method, EXAMPLES[0])) for method in EXPLANATIONS[::3]},
}


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("lorgnette.explaining.by_captum"), "DRAWN", 24)


def _same(mine: pd.DataFrame, expected: pd.DataFrame, tolerance: float) -> None:
    assert list(mine.columns) == list(expected.columns)
    assert len(mine) == len(expected) > 0
    for name, column in expected.items():
        if column.dtype.kind == "f":
            assert np.isfinite(column).any()
            np.testing.assert_allclose(mine[name], column, rtol=tolerance, atol=tolerance, err_msg=str(name))
        else:
            assert mine[name].tolist() == column.tolist(), name


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_makes_its_tensors_on_the_device_of_the_model(name):
    _captum_or_skip(name)
    make, ask = QUESTIONS[name]
    expected = ask(make(torch.float64))
    with elsewhere(make(torch.float64)) as subject:
        assert subject.device == ELSEWHERE
        _same(ask(subject), expected, 1e-9)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: there is nothing to compare with")
@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_has_the_same_answer_on_a_gpu(name):
    _captum_or_skip(name)
    make, ask = QUESTIONS[name]
    expected, subject = ask(make(torch.float32)), make(torch.float32)
    subject.model.to("cuda")
    _same(ask(subject), expected, 1e-3 if name.startswith(("shap", "lime")) else 1e-4)


def test_a_tensor_made_on_the_wrong_device_is_found():
    with elsewhere(gpt2(torch.float32)) as subject:
        ids = subject.encode([TEXT]).source.ids
        assert ids.device == ELSEWHERE
        with pytest.raises(AssertionError, match="mixes devices"):
            ids + torch.ones(1, 3, dtype=torch.long)
        assert (ids.cpu() + 1).device.type == "cpu"
        assert (ids + torch.tensor(1)).device == ELSEWHERE  # a single number may come from the CPU


def _captum_or_skip(name: str) -> None:
    if name.startswith(("shap", "lime")):
        pytest.importorskip("captum", reason="Captum is not installed")
