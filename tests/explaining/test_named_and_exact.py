"""What is explained is named, integrals say how exact they are, and biases count for their own text only."""

import sys

import pytest
import torch
from headed import examples, headed
from tiny import EXAMPLES, bert, gpt2, own_classifier

from lorgnette.attending import Tap
from lorgnette.errors import UserError
from lorgnette.explaining import explain


def bias_gradients(watched, batch, target):
    """Σ b · ∂f/∂b over every bias of a linear map or norm, one text at a time."""
    biases = [
        module.bias
        for module in watched.model.modules()
        if isinstance(module, torch.nn.Linear | torch.nn.LayerNorm) and module.bias is not None
    ]
    out = []
    for text, length in enumerate(batch.lengths.tolist()):
        alone = {name: tensor[text : text + 1, :length] for name, tensor in batch.inputs.items()}
        with watched.tapped(Tap()), torch.enable_grad():
            logit = watched.model(**alone).logits[0, target]
        slopes = torch.autograd.grad(logit, biases, allow_unused=True)
        out.append(sum((b.detach() * g).sum().item() for b, g in zip(biases, slopes, strict=True) if g is not None))
    return torch.tensor(out, dtype=torch.float64)


@pytest.mark.parametrize("family", ["deberta-v2-classifier", "bert-classifier"])
@pytest.mark.parametrize("texts", [1, 2, 16])
def test_biases_of_offsets_are_not_taken_for_texts(family, texts):
    """DeBERTa projects 16 offsets, which have no axis of texts: as many texts must not be mixed up with them."""
    watched = headed(family)
    lengths = [3 + number % 5 for number in range(texts)]
    batch = watched.encode(examples(lengths))
    found = explain(watched, batch, "gradient_x_input", target=1, biases=True)
    torch.testing.assert_close(found.biases, bias_gradients(watched, batch, 1), rtol=1e-7, atol=1e-9)
    alone = explain(watched, watched.encode(examples(lengths[:1])), "attnlrp", target=1, biases=True)
    together = explain(watched, batch, "attnlrp", target=1, biases=True)
    torch.testing.assert_close(together.total[0], alone.total[0], rtol=1e-7, atol=1e-9)


def steep():
    """A model whose logit is rough on the way from the baseline, for which few points do not do, and one text."""
    watched = own_classifier("tp9-base", [example.text for example in EXAMPLES])
    with torch.no_grad():
        for parameter in watched.model.parameters():
            parameter.mul_(2.0)
    return watched, watched.encode(EXAMPLES[:1])


def test_integrated_gradients_divide_the_path_until_they_add_up():
    watched, batch = steep()
    few, many = (explain(watched, batch, "integrated_gradients", 1, steps=steps) for steps in (16, 128))
    assert few.gap.max() > 0.01
    found = explain(watched, batch, "integrated_gradients", 1)
    assert found.gap.max() <= 0.01
    assert "(gap 0." in repr(found)
    distance = (found.tokens - many.tokens).abs().max()
    assert distance <= 0.03 * many.tokens.abs().sum()
    assert distance < (found.tokens - few.tokens).abs().max()


def test_an_integral_that_does_not_add_up_never_looks_fine(monkeypatch):
    watched, batch = steep()
    rough = explain(watched, batch, "integrated_gradients", 1, steps=1)
    assert rough.gap.max() > 0.05
    assert "does NOT add up" in repr(rough)
    assert "does NOT add up" in rough._repr_html_()
    module = sys.modules["lorgnette.explaining.integrated"]
    monkeypatch.setattr(module, "FEWEST", 1)
    monkeypatch.setattr(module, "MOST", 8)
    with pytest.raises(UserError, match=r"miss f\(x\) − f\(x⁰\) by \d+%"):
        explain(watched, batch, "integrated_gradients", 1)


def test_what_is_explained_is_named():
    watched = headed("bert-classifier")
    watched.model.config.id2label = {0: "bad", 1: "good"} | {
        n: f"other {n}" for n in range(2, watched.model.config.num_labels)
    }
    batch = watched.encode(examples((5, 3)))
    good = explain(watched, batch, "attnlrp", "good")
    assert good.explained == ("good", "good")
    torch.testing.assert_close(good.tokens, explain(watched, batch, "attnlrp", 1).tokens)
    assert explain(watched, batch, "rollout", (1, 0)).explained == ("good − bad",) * 2
    logits = watched.run(batch).logits.argmax(-1).tolist()
    names = [watched.labels[number] for number in logits]
    assert list(explain(watched, batch, "gradient_x_input").explained) == names
    with pytest.raises(UserError, match="no class 'god'"):
        explain(watched, batch, "attnlrp", "god")


def test_a_class_is_for_classifiers_and_a_translation_for_translators():
    with pytest.raises(UserError, match="not a classifier"):
        explain(gpt2(), gpt2().encode(EXAMPLES), "attnlrp", "positive")
    decoder = gpt2()
    names = explain(decoder, decoder.encode(EXAMPLES), "attnlrp").explained
    assert len(names) == len(EXAMPLES)
    assert all(names)
    with pytest.raises(UserError, match="translation"):
        bert().trace("a text", target="positive")
