"""What `check` must not let pass."""

import sys

import pytest
import torch
from tiny import tiny_model, tokenizer
from tiny.architectures import model_of_type

from lorgnette.errors import CaptureError
from lorgnette.models import interface
from lorgnette.models.discovery import discovered
from lorgnette.models.proof import Largest
from lorgnette.subject import Subject
from lorgnette.subject.checks import check


def exact(family):
    return Subject(tiny_model(family, dtype=torch.float64), tokenizer(family))


def test_float64_is_exact_where_transformers_takes_a_root_in_float32():
    checks = {one.name: one for one in check(exact("deberta-v2"))}
    assert all(one.ok for one in checks.values())
    assert float(checks["outputs unchanged"].detail.split()[-1]) < 1e-13


def test_a_model_whose_own_outputs_are_no_numbers_says_so():
    """Gemma-2 in transformers gives NaN on padded batches in float64."""
    watched = exact("bert-classifier")
    with torch.no_grad():
        watched.model.bert.encoder.layer[1].output.dense.bias.fill_(torch.nan)
    (only,) = check(watched)
    assert not only.ok
    assert "in float64" in only.detail


def test_what_is_not_a_number_is_no_small_difference():
    sizes = []
    for numbers in ([0.0, torch.nan], [-2.0, 1.0], []):
        largest = Largest()
        largest.take(torch.tensor(numbers), "a way")
        sizes.append(largest.size)
    assert sizes == [float("inf"), 2.0, 0.0]


def _failed(subject):
    return {one.name: one.detail for one in check(subject) if not one.ok}


@pytest.mark.parametrize("kind", ["splinter", "layoutlm", "bert", "llama", "t5", "gpt2"])
def test_a_model_is_run_on_every_way_that_it_has(kind):
    model = model_of_type(kind)
    translates = bool(getattr(model.config, "is_encoder_decoder", False))
    checks = check(Subject(model, tokenizer("marian" if translates else "gpt2")))
    assert [one for one in checks if not one.ok] == []
    details = {one.name: one.detail for one in checks}
    ways = "padding on the right, padding on the left, one text without padding, no mask, one token"
    cached = {"llama": 2, "gpt2": 2, "t5": 1}.get(kind, 0)
    more = (", a cache", ", a cache and padding on the left")[:cached]
    assert details["ways to run it"] == ways + "".join(more)
    assert all("not compared" not in detail for detail in details.values())


def _always_causal(plain):
    """What went wrong with Splinter: without a mask, a module that says nothing is taken for causal."""

    def scores(*arguments, is_causal, **keywords):
        return plain(*arguments, is_causal=True if is_causal is None else is_causal, **keywords)

    return scores


def test_a_model_that_is_captured_wrongly_only_without_padding_is_caught(monkeypatch):
    encoder = Subject(model_of_type("splinter"), tokenizer("gpt2"))
    module = sys.modules["lorgnette.attending.attend"]  # the function has the same name
    monkeypatch.setattr(module, "scores_of", _always_causal(module.scores_of))
    failed = _failed(encoder)
    assert set(failed) == {"outputs unchanged", "outputs = eager outputs", "weights = eager weights"}
    assert all(detail.endswith(("(with one text without padding)", "(with no mask)")) for detail in failed.values())
    with pytest.raises(CaptureError, match=r"with (one text without padding|no mask) capturing its attention changes"):
        discovered(model_of_type("splinter", seed=1))


@pytest.mark.parametrize(
    ("is_wrong", "ways"),
    [
        (
            lambda queries, keys, padding: padding is not None and not bool(padding[:, 0, 0, 0].all()),
            ("padding on the left", "a cache and padding on the left"),
        ),
        (lambda queries, keys, padding: 1 < queries < keys, ("a cache",)),
        (
            lambda queries, keys, padding: queries == keys and padding is None,
            ("one text without padding", "no mask", "a cache"),
        ),
    ],
)
@pytest.mark.parametrize("kind", ["llama", "opt"])
def test_a_mask_that_is_wrong_on_one_way_is_caught(kind, is_wrong, ways, monkeypatch):
    """The mask loses its band where it is asked for in one particular shape."""
    decoder, mask = Subject(model_of_type(kind), tokenizer("gpt2")), interface.BandMask

    def planted(shape, padding, band, device):
        return mask(shape, padding, interface.Band() if is_wrong(shape[2], shape[3], padding) else band, device)

    monkeypatch.setattr(interface, "BandMask", planted)
    failed = _failed(decoder)
    assert {"outputs unchanged", "outputs = eager outputs", "weights = eager weights"} <= set(failed)
    assert failed["weights = eager weights"].endswith(tuple(f"(with {way})" for way in ways))
