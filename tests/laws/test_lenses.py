"""The common laws, for every registered lens on an encoder, a decoder and a translation model."""

import pytest
from tiny import EXAMPLES, MAKERS, PROMPTS, TREEBANK, classifier, examples
from tiny import subject as tiny_subject

from lorgnette import lens as lenses
from lorgnette.errors import UserError
from lorgnette.testing import check_head_permutation, check_lens

pytestmark = pytest.mark.usefixtures("few_steps")

# What a lens cannot be without, so that the laws have something to hold for.
NEEDS = {
    "gradients": {"classifier", "gpt2", "marian"},
    "relevance": {"classifier", "gpt2", "marian"},
    "importance": {"classifier", "gpt2", "marian"},
    "removal": {"classifier", "gpt2", "marian"},
    "effects": {"classifier", "gpt2", "marian"},
    "patching": {"classifier", "gpt2", "marian"},
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
    "effects": {"total": False},  # with the total effects in tests/lens/test_effects.py
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


@pytest.mark.parametrize("kind", [*MAKERS, "classifier"])
@pytest.mark.parametrize("name", sorted(lenses.OURS))
def test_laws(name, kind):
    subject = classifier() if kind == "classifier" else MAKERS[kind]()
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
