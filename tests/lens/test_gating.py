"""Gating: the loss against heads scaled by hand, fits against fits alone, their equilibrium, what the report says."""

from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch
from gauge import grouped_llama, shift_values
from tiny import examples
from tiny import subject as tiny

from lorgnette.errors import UserError
from lorgnette.lens import get
from lorgnette.lens.ablation.means import HeadMeans, means_in
from lorgnette.lens.gating.fit import LIMIT, GatedLoss, drawn_rows, fitted
from lorgnette.lens.gating.lens import Gating
from lorgnette.lens.losses import task_of, text_losses
from lorgnette.lens.signals import signals_in
from lorgnette.looking.look import look
from lorgnette.reporting import figures_of, findings

TEXTS = examples((7, 2, 5, 4, 9, 3))
FAST = {"steps": 3, "batch": 2, "seeds": (0, 1)}


def gated_loss(subject, texts):
    places, end = {}, 0
    for site in subject.sites:
        places[site] = slice(end, end + subject.heads)
        end += subject.heads
    return GatedLoss(subject, task_of(subject), [subject.tokenize(text) for text in texts], places), end


def scaled(subject, place, gates):
    """Hooks that scale each head's part of what the output projection reads."""
    undo = ExitStack()
    for site in subject.anatomy.sites:
        factor = gates[place[site.site]]

        def scale(module, arguments, factor=factor):
            x = arguments[0]
            return ((x.unflatten(-1, (len(factor), -1)) * factor[:, None]).flatten(-2), *arguments[1:])

        undo.callback(site.output.register_forward_pre_hook(scale).remove)
    return undo


@pytest.mark.parametrize("family", ["bert-classifier", "llama", "marian"])
def test_the_loss_is_that_of_heads_scaled_by_hand(family):
    subject, texts = tiny(family), TEXTS
    loss, count = gated_loss(subject, texts)
    logits = torch.randn(2, count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = torch.tensor([[0, 1, 4], [5, 2, 2]])
    with torch.no_grad():
        fast = loss(logits, rows)
        for copy, own in enumerate(rows.tolist()):
            with scaled(subject, loss.place, torch.sigmoid(logits[copy])):
                each = []
                for row in own:
                    batch = subject.encode([texts[row]])
                    each.append(text_losses(subject, loss.task, batch, subject.run(batch))[0])
            torch.testing.assert_close(fast[copy], torch.cat(each).mean(), rtol=1e-9, atol=1e-9)


def test_centred_gates_close_towards_the_mean_of_a_head():
    """A constant in all values, taken out of the bias again, moves no centred gate, and raw ones it does."""
    model, moved = grouped_llama(), grouped_llama()
    shift_values(moved)
    options = {**FAST, "texts": 6}
    for centred in (True, False):
        one, other = (
            look(each, TEXTS, Gating(**options, centred=centred), progress=False)["gating"].data
            for each in (model, moved)
        )
        apart = max(float(abs(one[name] - other[name]).max()) for name in ("facilitation", "interference"))
        assert (apart < 1e-5) == centred, apart
        assert bool(one.attrs.get("centred")) == centred


def test_a_closed_gate_leaves_the_mean_of_a_head():
    """Against heads replaced by hand, in float64: g z + (1 − g) z̄."""
    model = tiny("gpt-neox")
    means = means_in(look(model, TEXTS, HeadMeans(), progress=False), model)
    plain, gates = gated_loss(model, TEXTS)
    loss = replace(plain, means=means)
    drawn = torch.rand(1, gates, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    rows = torch.arange(len(TEXTS))[None]
    undo = ExitStack()
    for site in model.anatomy.sites:
        factor, mean = drawn[0, loss.place[site.site]], means[site.site].double()

        def mix(module, arguments, factor=factor, mean=mean):
            heads = arguments[0].unflatten(-1, (len(factor), -1))
            return ((heads * factor[:, None] + (1 - factor)[:, None] * mean).flatten(-2), *arguments[1:])

        undo.callback(site.output.register_forward_pre_hook(mix).remove)
    with torch.no_grad():
        with undo:
            expected = plain(None, rows)
        torch.testing.assert_close(loss(torch.logit(drawn), rows), expected)
        assert float(abs(plain(torch.logit(drawn), rows) - expected)) > 1e-4


def test_fits_side_by_side_are_fits_alone():
    subject = tiny("bert-classifier")
    loss, count = gated_loss(subject, TEXTS)
    rows = torch.stack([drawn_rows(6, 4, 3, seed) for seed in (0, 1)], 1)
    start, pressure = torch.full((2, count), 2.0, dtype=torch.float64), torch.tensor([0.1, -0.1]).double()
    both = fitted(loss, start, pressure, rows, 0.3)
    for copy in (0, 1):
        alone = fitted(loss, start[:1], pressure[copy : copy + 1], rows[:, copy : copy + 1], 0.3)
        torch.testing.assert_close(both[copy], alone[0], rtol=1e-8, atol=1e-8)
    assert not any(parameter.grad is not None for parameter in subject.model.parameters())


def test_a_gate_settles_where_the_pressure_equals_the_slope():
    """L = Σ ΔL (1 − g): g (1 − g) = λ/ΔL above ½ if ΔL > 4 λ; a head that is worth less closes, one that hurts too."""
    worth = torch.tensor([[1.0, 0.1, 0.03, 0.0, -0.1]], dtype=torch.float64)

    def loss(logits, rows):
        return (worth * (1 - torch.sigmoid(logits))).sum(-1)

    rows, start = torch.zeros(800, 1, 1, dtype=torch.long), torch.full((1, 5), 2.0, dtype=torch.float64)
    gates = torch.sigmoid(fitted(loss, start, torch.tensor([-0.01]).double(), rows, 0.1))[0]
    closed = torch.sigmoid(torch.tensor(-LIMIT)).item()
    for gate, value in zip(gates[:2].tolist(), (1.0, 0.1), strict=True):
        assert gate == pytest.approx(0.5 + (0.25 - 0.01 / value) ** 0.5, abs=1e-3)
    assert gates[2:].tolist() == pytest.approx([closed] * 3, abs=1e-3)
    kept = torch.sigmoid(fitted(loss, -start, torch.tensor([0.01]).double(), rows, 0.1))[0]
    assert kept[4].item() == pytest.approx(0.5 - (0.25 - 0.1) ** 0.5, abs=1e-3)  # the head that hurts stays closed
    assert kept[3].item() == pytest.approx(1 - closed, abs=1e-3)


def test_a_bootstrap_sample_for_each_seed():
    rows = drawn_rows(10, 20, 5, 3)
    assert rows.shape == (20, 5)
    assert torch.equal(rows, drawn_rows(10, 20, 5, 3))
    assert len(rows.unique()) < 10  # drawn with replacement
    first, second = rows.flatten()[:10], rows.flatten()[10:20]
    assert torch.equal(first.sort().values, second.sort().values)


@pytest.mark.parametrize("family", ["bert-classifier", "bert-mlm", "gpt2", "t5"])
def test_every_task_and_the_report(family):
    results = look(tiny(family), TEXTS, [Gating(**FAST)], progress=False)
    data = results["gating"].data
    for name in ("facilitation", "interference", "irrelevance", "loss"):
        assert float(data[name].min()) >= 0, name
    keep, remove = 1 - data["interference_low"], data["facilitation_low"]
    assert bool((data["irrelevance"] <= keep + 1e-9).where(keep.notnull(), True).all())
    assert bool((data["facilitation"] >= remove - 1e-12).where(remove.notnull(), True).all())
    assert data.attrs["texts"] == [4, 2]
    names = [figure.name for figure in figures_of(results["gating"])]
    assert names == ["gates", "facilitation", "interference", "irrelevance"]
    assert len(list(findings(results))) >= 2
    assert {"facilitation", "gating_relevance"} <= set(signals_in(results))


def test_the_loss_without_gates_is_that_of_the_model():
    subject, texts = tiny("bert-classifier"), TEXTS
    loss, _ = gated_loss(subject, texts)
    batch = subject.encode(texts)
    with torch.no_grad():
        each = text_losses(subject, "classification", batch, subject.run(batch))[0]
        torch.testing.assert_close(loss(None, torch.arange(6)[None]), each.mean()[None], rtol=1e-9, atol=1e-9)


def test_wrong_input_is_one_line():
    with pytest.raises(UserError, match="of the lens 'gating' must be"):
        Gating(-0.1)
    with pytest.raises(UserError, match="at least two texts"):
        look(tiny("bert-classifier"), examples((4,)), [Gating(**FAST)], progress=False)
    with pytest.raises(UserError, match="has no label"):
        look(tiny("bert-classifier"), [replace(TEXTS[0], label=None)], [Gating(**FAST)], progress=False)
    assert get("gating:pressure=0.5,seeds=4+5").seeds == (4, 5)
