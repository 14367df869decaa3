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


def _numbers(arrays: dict[str, Any]) -> pd.DataFrame:
    """Arrays one below another, by name."""
    values = {
        name: (array.detach().cpu().double().numpy() if isinstance(array, torch.Tensor) else np.asarray(array)).ravel()
        for name, array in arrays.items()
    }
    names = [name for name, flat in values.items() for _ in flat]
    return pd.DataFrame({"what": names, "value": np.concatenate(list(values.values())).astype(float)})


def _tensors(subject: Subject) -> dict[str, torch.Tensor]:
    inputs = dict(subject.encode([TEXT, "good dog"]).inputs)
    return {name: tensor for name, tensor in inputs.items() if name != "token_type_ids"}


def _attended(subject: Subject) -> pd.DataFrame:
    with torch.no_grad():
        seen = lo.attention(subject, **_tensors(subject))
        last = lo.attention(subject, **_tensors(subject), layers=[2], heads=[1, 3], rows=[0], parts=["weights"])
    return _numbers({name: seen[name] for name in seen} | {f"{name} of a row": last[name] for name in last})


def _changed(subject: Subject) -> pd.DataFrame:
    inputs = _tensors(subject)
    flipped = {**inputs, "input_ids": inputs["input_ids"].flip(0), "attention_mask": inputs["attention_mask"].flip(0)}
    other = lo.attention(subject, parts=["context"], **flipped)
    effects = {
        "without": lo.effect(subject, inputs, without=["1.2", "2.1"]),
        "scaled": lo.effect(subject, inputs, scaled={"1.2": 0.5}),
        "patched": lo.effect(subject, inputs, patched=(other, ["1.2"]), positions=[0, 1]),
    }
    slopes = {
        "slopes": lo.gradient_effects(subject, inputs).values,
        "slopes to another": lo.gradient_effects(subject, inputs, from_=other).values,
    }
    logits = {name: effect.logits for name, effect in effects.items()}
    return _numbers(logits | {f"{name} KL": effect.divergence for name, effect in effects.items()} | slopes)


def _from_a_cache(subject: Subject) -> pd.DataFrame:
    ids = subject.encode([TEXT]).inputs["input_ids"]
    with torch.no_grad():
        begun = subject.model(input_ids=ids[:, :-2], use_cache=True).past_key_values
    inputs = {"input_ids": ids[:, -2:], "past_key_values": begun, "attention_mask": torch.ones_like(ids)}
    with torch.no_grad():
        seen = lo.attention(subject, **inputs, parts=["weights"])["weights"]
    return _numbers({"weights": seen, "without": lo.effect(subject, inputs, without=["1.2"]).logits})


def _watched(subject: Subject) -> pd.DataFrame:
    lens, inputs = lo.lens.get("weights"), _tensors(subject)
    with lo.watch(subject, lens, batch=lo.batch(inputs, subject.tokenizer)), torch.no_grad():
        subject.model(**inputs)
    entropy = lens.compute().data["entropy_normalised"].values
    return _numbers({"entropy": entropy})


def _generated(subject: Subject) -> pd.DataFrame:
    trace = subject.trace(TEXT, generate=3)
    ids = trace.batch.source.ids if trace.batch.target is None else trace.batch.target.ids
    return _numbers({"ids": ids, "weights": trace["weights"]})


BARE: dict[str, Callable[[Subject], pd.DataFrame]] = {
    "attention": _attended, "effects": _changed, "watch": _watched, "generated": _generated,
    "logit lens": lambda subject: lo.logit_lens(subject, TEXT).to_dataframe(),
}  # fmt: skip
OTHER_EXPLANATIONS = (
    "attnlrp", "ah", "decompx", "voita2019", "voita2021", "gradient_x_input", "integrated_gradients", "attention",
    "rollout", "attention_flow", "norm_rollout", "globenc", "alti", "value_zeroing",
)  # fmt: skip
ENCODERS_ONLY = ("globenc",)
"""It needs the norm behind attention."""

QUESTIONS: dict[str, Question] = {
    **{f"{name}, of a language model": (gpt2, ask) for name, ask in BARE.items()},
    "attention, of a classifier": (classifier, _attended),
    "effects, of a classifier": (classifier, _changed),
    "a cache": (gpt2, _from_a_cache),
    **{f"{method}, of a class": (classifier, _explained(method, TEXT, "good dog")) for method in OTHER_EXPLANATIONS},
    **{
        f"{method}, of a word": (gpt2, _explained(method, TEXT, "dog"))
        for method in OTHER_EXPLANATIONS
        if method not in ENCODERS_ONLY
    },
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


def test_every_explanation_is_asked():
    assert sorted({*EXPLANATIONS, *OTHER_EXPLANATIONS}) == sorted(lo.explanations())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: there is nothing to train on")
def test_train_and_prune_run_on_a_gpu(tmp_path):
    given: dict[str, Any] = {"limit": 96, "test_limit": 40, "epochs": 1, "batch_size": 16, "progress": False}
    small = {"layers": 2, "width": 16, "heads": 4}
    lo.train("tp9-residual-cls", "planted", tmp_path / "model", embeddings="random", overrides=small, **given)
    pruned = lo.prune(str(tmp_path / "model"), "planted", tmp_path / "small", keep=0.5, onnx=False, **given)
    assert 0 <= pruned.record["before"]["accuracy"] <= 1
    assert 0 <= pruned.record["metrics"]["test"]["accuracy"] <= 1
    assert pruned.record["parameters"]["after"] < pruned.record["parameters"]["before"]


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
