"""BLEU without a head is that of the plain model whose output projection does not read it."""

import pytest
import torch
from tiny import classifier, marian

from lorgnette.errors import UserError
from lorgnette.statistics.bleu import bleu
from lorgnette.texts.example import Example
from lorgnette.training.translation.bleu_without import bleu_without
from lorgnette.training.translation.generation import translate

SOURCES = ("the cat sat on the mat .", "a dog ran and it was good !", "the dog slept .")


def test_it_is_the_plain_models_without_the_head():
    subject = marian()
    own = translate(subject.model, subject.tokenizer, list(SOURCES), limit=64)
    references = [" ".join(text.split()[:9]) for text in own]  # something to agree with
    texts = [Example(f"{n}", s, target=r) for n, (s, r) in enumerate(zip(SOURCES, references, strict=True))]
    result = bleu_without(subject, texts, ["cross.2.1", ("encoder", 1, 3)], draws=50)
    data = result.data
    whole = bleu(own, references).score
    assert data.bleu.item() == pytest.approx(whole)
    assert int((data.bleu_change_count > 0).sum()) == 2
    for stack, layer, head in (("cross", 2, 1), ("encoder", 1, 3)):
        around = next(s for s in subject.anatomy.sites if (s.site.name, s.site.layer) == (stack, layer - 1))
        weight = around.output.weight.view(32, 4, 8)
        kept = weight.detach().clone()
        with torch.no_grad():
            weight[:, head - 1] = 0.0
        changed = bleu(translate(subject.model, subject.tokenizer, list(SOURCES), limit=64), references).score - whole
        with torch.no_grad():
            weight.copy_(kept)
        cell = data.sel(stack=stack, layer=layer, head=head)
        assert cell.bleu_change.item() == pytest.approx(changed, abs=1e-9)
        assert cell.bleu_change_low <= cell.bleu_change_high


def test_bad_input():
    with pytest.raises(UserError, match="is not a translation model"):
        bleu_without(classifier(), [Example("1", "good", target="bon")])
    with pytest.raises(UserError, match="'1' has no reference translation"):
        bleu_without(marian(), [Example("1", "good")])
    with pytest.raises(UserError, match="needs at least 2 texts"):
        bleu_without(marian(), [Example("1", "good", target="bon")])
