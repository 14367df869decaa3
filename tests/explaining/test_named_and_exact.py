"""What is explained is named, integrals say how exact they are, and biases count for their own text only."""

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


def test_integrated_gradients_say_how_exact_they_are():
    watched = own_classifier("tp9-base", [example.text for example in EXAMPLES])
    with torch.no_grad():  # a steep model, for which few points do not do
        for parameter in watched.model.parameters():
            parameter.mul_(3.0)
    batch = watched.encode(EXAMPLES)
    gaps = {steps: explain(watched, batch, "integrated_gradients", 1, steps=steps).gap for steps in (2, 64)}
    assert gaps[2].max() > 10 * gaps[64].max()
    found = explain(watched, batch, "integrated_gradients", 1)
    assert found.gap.max() <= max(0.005, float(gaps[64].max()))


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
