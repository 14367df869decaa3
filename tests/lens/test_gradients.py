"""Gradients of the weights: against finite differences of transformers' own losses, the laws, a planted zero."""

from dataclasses import replace

import pytest
import torch
from tiny import examples, subject

from lorgnette.attending import Tap
from lorgnette.errors import UserError
from lorgnette.lens.gradients.lens import COLUMNS, Gradients, Graph
from lorgnette.lens.losses import IGNORED, masked, task_of, text_losses
from lorgnette.looking.look import look
from lorgnette.testing import check_lens, run_lens

TASKS = {"bert-classifier": "classification", "marian": "translation", "gpt2": "causal", "bert-mlm": "masked"}


class Nudge(Tap):
    """Adds a little to one weight of one call."""

    def __init__(self, site, where, by):
        self.site, self.where, self.by = site, where, by

    def weights(self, call, weights):
        if call.site == self.site:
            weights = weights.clone()
            weights[self.where] += self.by
        return weights


def own_loss(tiny, example, tap):
    """What transformers itself calls the loss of one example, with a nudge."""
    task = task_of(tiny)
    batch = tiny.encode([example])
    inputs = dict(batch.inputs)
    if task == "classification":
        inputs["labels"] = torch.tensor([example.label])
    elif task == "translation":
        inputs["labels"] = torch.tensor([tiny.tokenizer(text_target=example.target)["input_ids"]])
    elif task == "causal":  # transformers computes this one in float32, too coarse for a difference
        ids = inputs["input_ids"][0].tolist()
        with torch.no_grad(), tiny.tapped(tap):
            chances = tiny.model(**inputs).logits[0].log_softmax(-1)
        return -sum(chances[place, word].item() for place, word in enumerate(ids[1:])) / (len(ids) - 1)
    else:
        hidden, labels = masked(tiny, batch)
        inputs = {**hidden.inputs, "labels": labels}
    with torch.no_grad(), tiny.tapped(tap):
        return tiny.model(**inputs).loss.item()


def finite(tiny, example, site, where, step=1e-5):
    up, down = (own_loss(tiny, example, Nudge(site, where, by)) for by in (step, -step))
    return (up - down) / (2 * step)


@pytest.mark.parametrize("family", TASKS)
def test_the_mean_is_that_of_finite_differences(family):
    tiny, example = subject(family), examples((3,))[0]
    assert task_of(tiny) == TASKS[family]
    data = run_lens(Gradients(), tiny, [tiny.encode([example])]).compute().data
    batch = tiny.encode([example])
    for site in (tiny.sites[0], tiny.sites[-1]):
        query_tokens, key_tokens = batch.queries(site), batch.keys(site)
        pairs = [
            (i, j)
            for i in range(query_tokens.ids.shape[1])
            for j in range(key_tokens.ids.shape[1])
            if site.kind == "cross" or site.stack == "encoder" or j <= i
        ]
        slopes = {(i, j): abs(finite(tiny, example, site, (0, 1, i, j))) for i, j in pairs}
        for kind in ("other", "sep", "all"):
            there = key_tokens.mask[0] if kind == "all" else key_tokens.categories[kind][0]
            wanted = [slope for (_, j), slope in slopes.items() if there[j]]
            cell = data.gradient.sel(stack=site.name, layer=site.layer + 1, head=2, category=kind)
            if not wanted:
                assert cell.isnull()
                continue
            assert cell.item() == pytest.approx(sum(wanted) / len(wanted), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("family", TASKS)
def test_losses_are_those_of_transformers(family):
    tiny, texts = subject(family), examples((5, 3, 7))
    batch = tiny.encode(texts)
    labels = None
    if task_of(tiny) == "masked":
        batch, labels = masked(tiny, batch)
    losses, there = text_losses(tiny, task_of(tiny), batch, tiny.run(batch, return_dict=True), labels)
    assert there.tolist() == [1, 1, 1]
    for example, loss in zip(texts, losses.tolist(), strict=True):
        assert loss == pytest.approx(own_loss(tiny, example, Tap()), rel=1e-9)


def test_laws_of_the_task_that_has_a_pass_of_its_own():
    result = check_lens(Gradients, subject("bert-mlm"), examples(), tolerance=1e-8)
    assert result.data.attrs["task"] == "masked"


def test_pooled_over_pairs():
    tiny, texts = subject("bert-classifier"), examples((3, 8))
    one, two = (run_lens(Gradients(), tiny, [tiny.encode([text])]).compute().data.gradient for text in texts)
    pooled = run_lens(Gradients(by="token"), tiny, [tiny.encode(texts)]).compute().data.gradient
    expected = (one * 5**2 + two * 10**2) / (5**2 + 10**2)
    assert abs(pooled - expected).sel(category="all").max() < 1e-12


def test_frozen_parameters_and_other_lenses_change_nothing():
    tiny, texts = subject("bert-classifier"), examples()
    alone = look(tiny, texts, [Gradients()], progress=False)
    for parameter in tiny.model.parameters():
        parameter.requires_grad_(False)
    beside = look(tiny, texts, ["weights", Gradients(), "distances"], progress=False)
    assert abs(alone["gradients"].data.gradient - beside["gradients"].data.gradient).max() < 1e-12
    plain = look(tiny, texts, ["weights"], progress=False)
    assert abs(plain["weights"].data.entropy - beside["weights"].data.entropy).max() < 1e-12
    assert all(parameter.grad is None for parameter in tiny.model.parameters())


def blind_to_sep(plant):
    """A BERT whose first layer reads nothing from [SEP] in head 1: its value vector there is zero."""
    tiny = subject("bert-classifier")
    embeddings, value = tiny.model.bert.embeddings, tiny.anatomy.sites[0].module.value
    with torch.no_grad():
        embeddings.position_embeddings.weight.zero_()
        sep = embeddings(torch.tensor([[3]]))[0, 0]
        if plant:
            weight, direction = value.weight[:8], sep / sep.norm()
            weight.sub_(torch.outer(weight @ direction, direction))
            value.bias[:8] = 0.0
    return tiny


def test_a_head_that_takes_nothing_from_sep_has_no_slope_there():
    found = {}
    for plant in (True, False):
        tiny = blind_to_sep(plant)
        data = run_lens(Gradients(), tiny, [tiny.encode(examples())]).compute().data
        found[plant] = data.gradient.sel(stack="encoder", layer=1, head=1)
    assert found[True].sel(category="sep").item() < 1e-15
    assert found[True].sel(category="other").item() > 1e-5
    assert found[False].sel(category="sep").item() > 1e-5


def test_masking_does_not_depend_on_the_batch():
    tiny, texts = subject("bert-mlm"), examples((20, 7, 1))
    together = masked(tiny, tiny.encode(texts))[1]
    for number, text in enumerate(texts):
        alone = masked(tiny, tiny.encode([text]))[1][0]
        assert torch.equal(together[number, : len(alone)], alone)
    counts = (together != IGNORED).sum(-1).tolist()
    assert counts == [3, 1, 1]
    assert not torch.equal(masked(tiny, tiny.encode(texts), seed=1)[1], together)


def test_texts_without_anything_to_predict_do_not_count():
    tiny = subject("gpt2")
    data = run_lens(Gradients(), tiny, [tiny.encode(examples((1, 4)))]).compute().data
    assert data.gradient_count.sel(category="other").max() == 1
    assert COLUMNS[-1] == "all"


@pytest.mark.parametrize(
    ("family", "change", "message"),
    [
        ("bert", {}, "has no loss: it has no output head"),
        ("bert-classifier", {"label": None}, "'1' has no label"),
        ("bert-classifier", {"label": 7}, r"label 7, but 'tiny bert-classifier' has 3 classes"),
        ("marian", {"target": None}, "'1' has no reference translation"),
    ],
)
def test_bad_input_is_one_line(family, change, message):
    texts = [replace(example, **change) for example in examples((4,))]
    with pytest.raises(UserError, match=message) as caught:
        look(subject(family), texts, [Gradients()], progress=False)
    assert "\n" not in str(caught.value)


def test_graph_says_when_there_is_none():
    tiny = subject("bert")
    with torch.no_grad(), pytest.raises(RuntimeError, match="needs a pass with gradients"), tiny.tapped(Graph()):
        tiny.run(tiny.encode(["w7"]))
