"""DecompX in one way back is the paper's n×n vectors carried forward."""

import pytest
import torch
from headed import HEADED, examples, headed
from tiny import EXAMPLES, own_classifier

from benchmarks.decomposed import decomposed
from lorgnette.errors import UserError
from lorgnette.explaining import explain
from lorgnette.models.classifier.presets import PRESETS


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_it_is_the_papers_vectors_carried_forward(dtype, tolerance):
    watched = headed("bert-classifier", dtype)
    batch = watched.encode(examples((7, 2)))
    for label in range(3):
        fast = explain(watched, batch, "decompx", label)
        for text, length in enumerate(batch.lengths.tolist()):
            slow = decomposed(watched.model, batch.source.ids[text, :length])
            torch.testing.assert_close(slow.sum(0)[label], fast.start[text], rtol=tolerance, atol=tolerance)
            torch.testing.assert_close(fast.tokens[text, :length], slow[:-1, label], rtol=tolerance, atol=tolerance)
            torch.testing.assert_close(fast.biases[text], slow[-1, label], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("family", HEADED)
def test_tokens_and_biases_are_the_whole_logit(family):
    """By default what tokens leave is the biases'; here every bias is also asked by itself."""
    watched = headed(family)
    kinds = {type(module).__name__ for module in watched.model.modules()}
    single = any(kind.endswith(("RMSNorm", "T5LayerNorm")) for kind in kinds)
    tolerance = 1e-6 if single else 1e-10  # these work in float32 whatever they are given
    batch = watched.encode(examples((7, 1)))
    left, each = (explain(watched, batch, "decompx", biases=biases) for biases in (False, True))
    torch.testing.assert_close(each.total, each.start, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(left.total, left.start, rtol=1e-12, atol=1e-12)
    assert torch.equal(left.tokens, each.tokens)
    assert left.positions is None
    assert (left.target_tokens is None) == (batch.target is None)
    assert not left.tokens[~batch.source.mask].any()
    assert tuple(left.heads) == watched.sites


@pytest.mark.parametrize("name", PRESETS)
def test_our_own_classifiers(name):
    watched = own_classifier(name, [example.text for example in EXAMPLES])
    batch = watched.encode(EXAMPLES)
    if name == "bilstm-attention":
        with pytest.raises(UserError, match=r"a recurrent part \(LSTM\)"):
            explain(watched, batch, "decompx")
        return
    left, each = (explain(watched, batch, "decompx", biases=biases) for biases in (False, True))
    torch.testing.assert_close(left.biases, each.biases, rtol=1e-11, atol=1e-11)


def test_it_is_ah_with_position_and_type_in_their_token():
    """Heads have the same relevance; the first LayerNorm's bias is the tokens' here, and the biases' there."""
    watched = headed("bert-classifier")
    batch = watched.encode(examples((7, 2)))
    mine, theirs = explain(watched, batch, "decompx"), explain(watched, batch, "ah", biases=True)
    for site, heads in mine.heads.items():
        torch.testing.assert_close(heads, theirs.heads[site])
    shift = watched.model.bert.embeddings.LayerNorm.bias
    before = shift.detach().clone()
    with torch.no_grad():
        shift.zero_()
    mine, theirs = explain(watched, batch, "decompx"), explain(watched, batch, "ah", biases=True)
    with torch.no_grad():
        shift.copy_(before)
    torch.testing.assert_close(mine.tokens, theirs.tokens + theirs.positions)
    torch.testing.assert_close(mine.biases, theirs.biases)
