"""The common laws, for every registered lens on an encoder, a decoder and a translation model."""

import pytest
import torch
from tiny import EXAMPLES, MAKERS, PROMPTS, TREEBANK, classifier, examples
from tiny import subject as tiny_subject

from lorgnette import lens as lenses
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.lens.moments import Moments
from lorgnette.testing import check_head_permutation, check_lens, left_padded

pytestmark = pytest.mark.usefixtures("few_steps")

# What a lens cannot be without, so that the laws have something to hold for.
NEEDS = {
    "gradients": {"classifier", "gpt2", "marian"},
    "relevance": {"classifier", "gpt2", "marian"},
    "importance": {"classifier", "gpt2", "marian"},
    "removal": {"classifier", "gpt2", "marian"},
    "effects": {"classifier", "gpt2", "marian"},
    "patching": {"classifier", "gpt2", "marian"},
    "edges": {"classifier", "gpt2", "marian"},
    "logitlens": {"gpt2", "marian"},
    "context": {"gpt2"},
    "gating": {"classifier", "gpt2", "marian"},
    "agreement": set(),  # made from other lenses' results
    "alignment": {"marian"},
    "cones": {"classifier"},
    "rationales": {"classifier"},
    "sources": {"gpt2"},
}
# Lenses that compare attention with a treebank.
TREES = ("relations", "trees", "probes", "roles", "attention-probe", "coreference")
# The laws do not need a probe, or gates, trained to the end.
OPTIONS = {
    "attention-probe": {"steps": 20},
    "probes": {"epochs": 2, "seeds": (0, 1), "hidden": 8},
    "synthetic": {"sequences": 3, "length": 5},
    "removal": {"controls": 3},
    "effects": {"total": False},  # with the total effects in tests/lens/test_effects.py
    "edges": {"strongest": 0, "drawn": 0},  # patched edges in tests/lens/test_edges.py
    "logitlens": {"positions": 3},
    "context": {"sinks": 1, "windows": (2, 4), "window": 3},
    "gating": {"steps": 1, "seeds": (0,), "batch": 2},
}


def made(name):
    return lenses.get(name, **OPTIONS.get(name, {}))


def texts(name):
    if name == "sources":
        return PROMPTS
    return TREEBANK if name in (*TREES, "rationales") else EXAMPLES


def law_subject(kind):
    """A subject of this kind; each computes the same wherever padding is, except a classifier, which reads token 0."""
    subject = classifier() if kind == "classifier" else MAKERS[kind]()
    if kind == "marian":
        for stack in (subject.model.model.encoder, subject.model.model.decoder):
            position_by_mask(stack)
    return subject


def position_by_mask(stack):
    """Count the positions of a stack from the first token of each text; Marian takes no position_ids."""
    masks = []

    def remember(module, arguments, keywords):
        masks[:] = [keywords.get("attention_mask")]

    def count(module, arguments, keywords):
        if masks[0] is not None:  # else nothing is padded
            keywords = {**keywords, "position_ids": (masks[0].cumsum(-1) - 1).clamp(min=0)}
        return arguments, keywords

    stack.register_forward_pre_hook(remember, with_kwargs=True)
    stack.embed_positions.register_forward_pre_hook(count, with_kwargs=True)


@pytest.mark.parametrize("kind", [*MAKERS, "classifier"])
def test_every_kind_but_a_classifier_computes_the_same_with_padding_on_the_left(kind):
    subject = law_subject(kind)
    for some in (EXAMPLES, TREEBANK):
        left = left_padded(subject, subject.encode(list(some)))
        assert (left is None) == (kind == "classifier")
        assert left is None or (not left.source.mask[:, :5].any() and left.source.mask[:, -1].all())


class ByColumn(Lens):
    """Wrong: takes the n-th piece of a text for the n-th column, which holds only if padding is behind the texts."""

    name = "by-column"

    def allocate(self, subject):
        self.moments = Moments(self, ("mass",))

    def update(self, call, batch):
        weights, keys = call.weights, batch.keys(call.site)
        letters = torch.zeros(keys.ids.shape, dtype=weights.dtype)
        for text, pieces in enumerate(keys.pieces):
            letters[text, : len(pieces)] = torch.tensor([float(len(piece)) for piece in pieces])
        mass = torch.einsum("bhqk,bk,bq->bh", weights, letters, batch.queries(call.site).mask.to(weights.dtype))
        self.moments.add(call.site, mass=(mass, torch.ones_like(mass[:, :1])))

    def compute(self):
        return self.result(self.moments.arrays())


def test_a_lens_that_takes_pieces_for_columns_is_caught():
    with pytest.raises(AssertionError, match="padding on the left changes nothing: mass"):
        check_lens(ByColumn, law_subject("bert"), EXAMPLES)


@pytest.mark.parametrize("kind", [*MAKERS, "classifier"])
@pytest.mark.parametrize("name", sorted(lenses.OURS))
def test_laws(name, kind):
    subject = law_subject(kind)
    if kind not in NEEDS.get(name, {"bert", "gpt2", "marian"}):
        if kind == "classifier" or name not in NEEDS:
            return  # a classifier is a BERT for lenses that need no head
        with pytest.raises(UserError):
            check_lens(lambda: made(name), subject, texts(name))
        return
    check_lens(lambda: made(name), subject, texts(name), tolerance=1e-9)


@pytest.mark.parametrize("name", sorted(lenses.OURS))
def test_permuting_heads_permutes_the_result(name):
    if name == "removal":
        return  # its random sets are drawn by number; tests/lens/test_removal_lens.py permutes what the signals choose
    if name in ("alignment", "agreement", "sources", "context"):
        with pytest.raises(UserError):
            check_head_permutation(lambda: made(name), classifier(), texts(name))
        return
    if name == "logitlens":
        check_head_permutation(lambda: made(name), tiny_subject("bert-mlm"), examples((20, 9)), tolerance=1e-9)
        return
    subject = classifier() if name in NEEDS else MAKERS["bert"]()
    check_head_permutation(lambda: made(name), subject, texts(name), tolerance=1e-9)
