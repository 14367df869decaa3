"""Importance: every head really taken out of the plain model, gates by finite differences, the laws, a planted head."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny import examples, subject

from lorgnette.errors import UserError
from lorgnette.lens.ablation.means import HeadMeans
from lorgnette.lens.ablation.rerun import Replacement, Rerun
from lorgnette.lens.importance.lens import Importance
from lorgnette.lens.losses import masked, task_of
from lorgnette.looking.look import look
from lorgnette.subject.knockout import Knockout, heads_at, mean_outputs
from lorgnette.testing import check_lens, run_lens

TASKS = ("bert-classifier", "distilbert", "marian", "t5", "gpt2", "llama", "bert-mlm")
IN_FLOAT32 = ("t5", "llama")  # their norms, whatever the model's dtype: too coarse for a fine difference
STEP = 1e-4


@contextmanager
def changed(tiny, site, head, change):
    """The plain model with the part of the output projection's input that comes from one head changed."""
    around = tiny.anatomy[site]

    def before(module, arguments):
        parts = arguments[0].unflatten(-1, (around.heads, -1)).clone()
        parts[..., head, :] = change(parts[..., head, :])
        return (parts.flatten(-2),)

    handle = around.output.register_forward_pre_hook(before)
    try:
        yield
    finally:
        handle.remove()


def losses(tiny, texts):
    """Losses text by text, from the logits of the model as transformers runs it."""
    out = []
    for example in texts:
        batch = tiny.encode([example])
        task = task_of(tiny)
        labels = None
        if task == "masked":
            batch, labels = masked(tiny, batch)
            labels = labels[0].tolist()
        with torch.no_grad():
            chances = tiny.model(**batch.inputs).logits.double()[0].log_softmax(-1)
        if task == "classification":
            out.append(-chances[example.label].item())
            continue
        if task == "causal":
            labels = [*batch.inputs["input_ids"][0, 1:].tolist(), -100]
        elif task == "translation":
            labels = tiny.tokenizer(text_target=example.target)["input_ids"]
        wanted = [(place, piece) for place, piece in enumerate(labels) if piece != -100]
        out.append(-np.mean([chances[place, piece].item() for place, piece in wanted]) if wanted else np.nan)
    return np.array(out)


@pytest.mark.parametrize("family", TASKS)
def test_every_change_is_that_of_the_plain_model_without_the_head(family):
    tiny = subject(family)
    texts = [replace(example, label=example.label % 2) for example in examples((5, 3, 8, 1))]
    found = look(tiny, texts, [Importance(), HeadMeans()], progress=False)
    data, means = found["importance"].data, found["head_means"]
    intact = losses(tiny, texts)
    close = {"rel": 1e-2, "abs": 2e-3} if family in IN_FLOAT32 else {"rel": 1e-5, "abs": 1e-9}
    assert data.loss.item() == pytest.approx(np.nanmean(intact), rel=1e-6)
    for site in (tiny.sites[0], tiny.sites[len(tiny.sites) // 2], tiny.sites[-1]):
        mean = mean_outputs(means, tiny, site)
        for head in (0, 3):
            cell = data.sel(stack=site.name, layer=site.layer + 1, head=head + 1)
            for ablation, vector in (("zero", 0.0), ("mean", mean[head].to(tiny.dtype))):
                with changed(tiny, site, head, lambda part, vector=vector: torch.zeros_like(part) + vector):
                    differences = losses(tiny, texts) - intact
                assert cell.loss_change.sel(ablation=ablation).item() == pytest.approx(
                    np.nanmean(differences), rel=1e-4, abs=1e-7
                )
            assert cell.loss_change_count.max().item() == np.isfinite(intact).sum()
            # One text at a time: the size of the slope is averaged, not the slope.
            slopes = []
            for example in texts:
                with changed(tiny, site, head, lambda part: part * (1 + STEP)):
                    up = losses(tiny, [example])
                with changed(tiny, site, head, lambda part: part * (1 - STEP)):
                    slopes.append(abs(up - losses(tiny, [example]))[0] / (2 * STEP))
            assert cell.sensitivity.item() == pytest.approx(np.nanmean(slopes), **close)


def test_accuracy_is_counted():
    tiny, texts = subject("bert-classifier"), examples((5, 3, 8, 1, 7, 2))
    data = look(tiny, texts, [Importance(["zero"])], progress=False)["importance"].data

    def right():
        with torch.no_grad():
            logits = [tiny.model(**tiny.encode([text]).inputs).logits for text in texts]
        return np.mean([row.argmax().item() == text.label for row, text in zip(logits, texts, strict=True)])

    intact = right()
    assert data.accuracy.item() == pytest.approx(intact)
    for site in tiny.sites:
        for head in range(4):
            with changed(tiny, site, head, torch.zeros_like):
                cell = data.accuracy_change.sel(stack="encoder", layer=site.layer + 1, head=head + 1, ablation="zero")
                assert cell.item() == pytest.approx(right() - intact)


def test_laws_with_means():
    tiny = subject("bert-mlm")
    means = look(tiny, examples(), [HeadMeans()], progress=False)

    def make():
        lens = Importance()
        lens.bind(tiny)
        lens.take(means)
        return lens

    result = check_lens(make, tiny, examples(), tolerance=1e-7)
    assert (result.data.loss_change_count.sel(ablation="mean") == 5).all()


def test_only_the_heads_of_some_stacks():
    tiny, texts = subject("marian"), examples((5, 3))
    whole, some = (
        look(tiny, texts, [Importance(["zero"], stacks=stacks)], progress=False)["importance"].data
        for stacks in (None, ["cross"])
    )
    for name in ("loss_change", "sensitivity"):
        cross = some[name].sel(stack="cross")
        np.testing.assert_allclose(cross, whole[name].sel(stack="cross"), rtol=1e-6)
        assert cross.notnull().all()
        assert some[name].sel(stack=["encoder", "decoder"]).isnull().all()
    assert some.loss.item() == pytest.approx(whole.loss.item())


def test_without_means_the_mean_ablation_is_missing():
    tiny = subject("bert-classifier")
    data = run_lens(Importance(), tiny, [tiny.encode(examples())]).compute().data
    assert (data.loss_change_count.sel(ablation="mean") == 0).all()
    assert data.loss_change.sel(ablation="mean").isnull().all()
    assert data.loss_change.sel(ablation="zero").notnull().all()


@pytest.mark.parametrize("family", ["albert", "albert-inner"])
def test_shared_layers_are_told_apart(family):
    """Layers that are one module: the head is replaced in one layer only."""
    tiny, texts = subject(family), examples((4, 6))
    batch = tiny.encode(texts)
    rerun = Rerun(tiny, batch)
    assert rerun.shared
    with torch.no_grad(), rerun.recording():
        tiny.model(**batch.inputs)
    outputs = []
    tiny.model.register_forward_hook(lambda module, arguments, output: output.__setattr__("logits", output[0]))
    for site in tiny.sites[:2]:
        with torch.no_grad():
            again = rerun.logits(site, [Replacement(1, None), Replacement(2, None)])
            for copy, head in enumerate((1, 2)):
                with tiny.tapped(Knockout({site: (head,)})):
                    assert torch.allclose(again[copy], tiny.run(batch).last_hidden_state, atol=1e-12)
        outputs.append(again)
    assert not torch.allclose(*outputs, atol=1e-6)


def test_layers_below_are_not_run_again():
    tiny = subject("bert-classifier")
    batch = tiny.encode(examples())
    rerun, ran = Rerun(tiny, batch), []
    with torch.no_grad(), rerun.recording():
        tiny.model(**batch.inputs)
    for number, layer in enumerate(tiny.model.bert.encoder.layer):
        layer.intermediate.register_forward_hook(lambda *_, number=number: ran.append(number))
    with torch.no_grad():
        rerun.logits(tiny.sites[1], [Replacement(0, None)] * 3)
    assert ran == [1, 2]
    assert not any("forward" in vars(module) for module in tiny.model.modules())


def one_head_that_matters():
    """A classifier whose output hangs on layer 2, head 3: all other heads give nothing."""
    tiny = subject("bert-classifier", seed=3)
    with torch.no_grad():
        for around in tiny.anatomy.sites:
            weight = around.output.weight.view(32, 4, 8)
            for head in range(4):
                if (around.site.layer, head) != (1, 2):
                    weight[:, head] = 0.0
                else:
                    weight[:, head] *= 20
    return tiny


def test_the_one_head_that_matters_is_found():
    data = look(one_head_that_matters(), examples((9, 4, 1, 6, 12)), [Importance()], progress=False)["importance"].data
    for values in (abs(data.loss_change.sel(ablation="zero")), data.sensitivity):
        best = values.sel(stack="encoder").stack(which=("layer", "head")).idxmax().item()
        assert best == (2, 3)
        others = values.sel(stack="encoder").where(values.sel(stack="encoder") < values.max(), 0.0)
        assert others.max() < 1e-6 * values.max()


def test_head_names():
    tiny = subject("marian")
    found = heads_at(tiny, ["encoder.1.4", ("cross", 3, 1), ("cross", 3, 2), "cross.3.1"])
    assert {(site.name, site.layer): heads for site, heads in found.items()} == {
        ("encoder", 0): (3,),
        ("cross", 2): (0, 1),
    }
    assert heads_at(subject("bert"), "3.4") == {subject("bert").sites[2]: (3,)}


@pytest.mark.parametrize(
    ("family", "name", "message"),
    [
        ("bert", "4.1", "There is no head 4.1: the encoder of 'tiny bert' has 3 layers of 4 heads"),
        ("bert", ("encoder", 1, 5), "There is no head encoder.1.5"),
        ("bert", "0.1", "There is no head 0.1"),
        ("bert", "three", "three is not a head of 'tiny bert': expected LAYER.HEAD"),
        ("marian", "1.1", r"expected STACK.LAYER.HEAD \(encoder, decoder, cross\)"),
        ("marian", "encodre.1.1", "no stack 'encodre'. Did you mean 'encoder'"),
    ],
)
def test_a_head_that_is_not_there(family, name, message):
    with pytest.raises(UserError, match=message):
        heads_at(subject(family), [name])


def test_bad_input():
    with pytest.raises(UserError, match="no output head"):
        look(subject("bert"), examples(), [Importance()], progress=False)
    with pytest.raises(UserError, match="corpus twice"):
        look(subject("bert-classifier"), iter(examples()), [Importance()], progress=False)
    with pytest.raises(UserError, match="must be a list of any of 'zero', 'mean'"):
        Importance(["none"])
    with pytest.raises(UserError, match="'stacks' of the lens 'importance' must be a list of words"):
        Importance(stacks="cross")
    with pytest.raises(UserError, match=r"must hold stacks of the model \(encoder\)\. Got \['decoder'\]"):
        look(subject("bert-classifier"), examples(), [Importance(stacks=["decoder"])], progress=False)
    weights = look(subject("bert"), examples(), ["weights"], progress=False)["weights"]
    with pytest.raises(UserError, match="needs a result of the lens 'head_means'"):
        Knockout.of(subject("bert"), ["1.1"], weights)
