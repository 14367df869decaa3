"""Effects against removal by hand and the gradient of bare models, and on a planted head."""

import numpy as np
import pytest
import torch
from gauge import grouped_llama, shift_values
from tiny import EXAMPLES, MAKERS, classifier, examples, own_classifier

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.lens.ablation.means import HeadMeans
from lorgnette.lens.effects.answers import OutputLayer
from lorgnette.lens.effects.goal import goal_of
from lorgnette.lens.effects.lens import Effects
from lorgnette.subject.knockout import Knockout
from lorgnette.testing import check_lens, run_lens
from lorgnette.texts.example import Example


def numbers(subject, corpus, **options):
    return lo.look(subject, list(corpus), [Effects(**options)], progress=False)["effects"].data


def places(data):
    for stack in data["stack"].values.tolist():
        for layer in data["layer"].values.tolist():
            for head in data["head"].values.tolist():
                cell = {"stack": stack, "layer": layer, "head": head}
                if np.isfinite(float(data["by_gradient"].sel(cell))):
                    yield cell


def predicted(subject, batch, logits):
    """The mean logit of what the intact model predicts, over the positions that predict something."""
    if logits.dim() == 2:
        return lambda other: other[0, int(logits[0].argmax())]
    count = int((batch.source if batch.target is None else batch.target).mask.sum())
    said = logits[0, :count].argmax(-1)
    return lambda other: other[0, torch.arange(count), said].mean()


@pytest.mark.parametrize("kind", ["classifier", "gpt2", "marian"])
def test_total_and_gradient_are_those_of_bare_models(kind):
    subject = classifier() if kind == "classifier" else MAKERS[kind]()
    few = EXAMPLES[:2]
    data = numbers(subject, few, ablation="zero")
    gradients, totals = [], {}
    for example in few:
        batch = subject.encode([example])
        with torch.no_grad():
            logits = subject.run(batch).logits
        value = predicted(subject, batch, logits)
        gradients.append(-lo.gradient_effects(subject, batch.inputs, metric=lambda out, of=value: of(out.logits)))
        for cell in places(data):
            name = f"{cell['stack']}.{cell['layer']}.{cell['head']}"
            with torch.no_grad(), lo.without(subject, [name]):
                left = value(subject.model(**batch.inputs).logits)
            totals.setdefault(name, []).append(float(value(logits) - left))
    expected = sum(gradients) / len(gradients)
    for cell in places(data):
        assert float(data["by_gradient"].sel(cell)) == pytest.approx(float(expected.sel(cell)), abs=1e-10)
        name = f"{cell['stack']}.{cell['layer']}.{cell['head']}"
        assert float(data["total"].sel(cell)) == pytest.approx(np.mean(totals[name]), abs=1e-10)
    assert float(data["terms"].sum()) == pytest.approx(float(data["logit"]), abs=1e-9)


@pytest.mark.parametrize("kind", ["classifier", "gpt2", "marian"])
def test_heads_are_replaced_by_their_means_over_the_corpus(kind):
    subject = classifier() if kind == "classifier" else MAKERS[kind]()
    few = list(EXAMPLES[:3])
    data = numbers(subject, few)
    means = lo.look(subject, few, [HeadMeans()], progress=False)["head_means"]
    totals = {}
    for example in few:
        batch = subject.encode([example])
        with torch.no_grad():
            logits = subject.run(batch).logits
        value = predicted(subject, batch, logits)
        for cell in places(data):
            name = f"{cell['stack']}.{cell['layer']}.{cell['head']}"
            with torch.no_grad(), subject.tapped(Knockout.of(subject, [name], means)):
                left = value(subject.run(batch).logits)
            totals.setdefault(name, []).append(float(value(logits) - left))
    for cell in places(data):
        name = f"{cell['stack']}.{cell['layer']}.{cell['head']}"
        assert float(data["total"].sel(cell)) == pytest.approx(np.mean(totals[name]), abs=1e-10)
    assert data.attrs["ablation"] == "mean"
    terms = data["terms"]
    assert float(terms.sum()) == pytest.approx(float(data["logit"]), abs=1e-9)
    assert float(terms.sel(term="heads")) == pytest.approx(float(data["direct"].sum()), abs=1e-9)


EFFECTS = ("direct", "by_gradient", "total", "terms")


@pytest.mark.parametrize(
    ("make", "texts", "tolerance"),
    [(classifier, EXAMPLES, 1e-10), (MAKERS["marian"], EXAMPLES, 1e-10), (grouped_llama, examples((9, 4, 6)), 1e-5)],
)
def test_a_constant_in_the_values_changes_no_effect_but_those_of_zero(make, texts, tolerance):
    """Llama's norms and softmax are float32 whatever the model is."""
    before, after = make(), make()
    shift_values(after)
    for ablation, equal in (("mean", True), ("zero", False)):
        one, other = (numbers(subject, texts, ablation=ablation) for subject in (before, after))
        for name in EFFECTS:
            a, b = one[name].values, other[name].values
            scale = np.nanmax(np.abs(a))
            assert bool(np.nanmax(np.abs(a - b)) < tolerance * scale) is equal, (ablation, name)


def test_without_means_it_is_refused_and_not_zero():
    subject = classifier()
    with pytest.raises(UserError, match="which have not been measured"):
        run_lens(Effects(), subject, [subject.encode(list(EXAMPLES))])


def test_the_laws_hold_of_total_effects_too():
    check_lens(lambda: Effects(target="margin"), MAKERS["gpt2"](), EXAMPLES, tolerance=1e-9)


def test_the_gradient_ranks_heads_like_their_total_effects():
    data = numbers(MAKERS["gpt2"](), EXAMPLES)
    assert float(data["alike"].sel(signal="by_gradient")) > 0.5
    assert float(data["alike_means"].sel(signal="by_gradient")) > 0.5


def test_a_mean_ablated_head_that_never_varies_has_no_effect():
    subject = classifier()
    same = [Example(f"{number}", "the cat sat", label=0) for number in range(4)]
    data = numbers(subject, same)
    zero = numbers(subject, same, ablation="zero")
    assert float(np.abs(zero["total"]).max()) > 1e-3
    last = data["by_gradient"].sel(layer=1).values  # mean over tokens, too: a head differs from it from token to token
    assert np.isfinite(last).all()
    assert not np.allclose(data["total"].values, zero["total"].values)


def test_a_difference_of_two_classes_is_the_difference():
    subject = classifier()
    subject.model.config.id2label = {0: "no", 1: "yes"}
    one, other, both = (numbers(subject, EXAMPLES, target=target) for target in ("yes", "no", ("yes", "no")))
    for name in ("direct", "total", "by_gradient"):
        np.testing.assert_allclose(both[name].values, (one[name] - other[name]).values, atol=1e-10)


def test_own_classifiers_have_their_terms():
    corpus = [Example(f"{number}", "the cat sat on the mat", label=0) for number in range(2)]
    for name in ("tp9-residual-cls", "pure-attention"):
        subject = own_classifier(name, [example.text for example in corpus])
        data = numbers(subject, corpus, total=False)
        assert float(data["terms"].sum()) == pytest.approx(float(data["logit"]), abs=1e-9)
        assert "total" not in data
    assert float(np.abs(data["direct"]).max()) > 0
    for name in ("attention-pooling", "bilstm-attention"):
        with pytest.raises(UserError, match="direct path"):
            numbers(own_classifier(name, [corpus[0].text]), corpus)


@pytest.mark.parametrize("options", [{"target": ()}, {"target": ("margin", "no")}, {"ablation": "noise"}])
def test_wrong_options_are_refused(options):
    with pytest.raises(UserError, match="of the lens 'effects' must be"):
        Effects(**options)


def test_a_class_of_a_language_model_is_refused():
    with pytest.raises(UserError, match="not a classifier"):
        numbers(MAKERS["gpt2"](), EXAMPLES, target="yes")


@pytest.mark.parametrize("target", ["predicted", "margin"])
def test_two_logits_a_position_are_enough_where_the_output_layer_ends_the_model(target, monkeypatch):
    """The same totals as with whole vocabularies, from passes that never compute one."""
    subject, widths = MAKERS["gpt2"](), []
    head = subject.model.get_output_embeddings()
    hook = head.register_forward_hook(lambda module, arguments, output: widths.append(output.shape[-1]))
    narrow = lo.look(subject, EXAMPLES, [Effects(target, "zero")], progress=False)["effects"].data
    hook.remove()
    wide_passes = sum(width > 2 for width in widths)
    monkeypatch.setattr(OutputLayer, "answers", lambda *_: None)
    wide = lo.look(subject, EXAMPLES, [Effects(target, "zero")], progress=False)["effects"].data
    np.testing.assert_allclose(narrow["total"], wide["total"], atol=1e-12)
    assert wide_passes == 3  # of one batch: the plain pass and two with gradients
    assert len(widths) > 3


def test_logits_that_the_model_changes_afterwards_are_computed_in_full():
    subject = MAKERS["marian"]()  # adds a bias to what its output layer gives
    layer = OutputLayer(subject)
    batch = subject.encode(EXAMPLES)
    with torch.no_grad(), layer.watched():
        logits = subject.run(batch, return_dict=True).logits
    assert layer.layer is not None
    assert layer.answers(logits, goal_of(subject, "translation", batch, logits, ("predicted",))) is None
