"""Words in sentences and alone: planted vectors, an encoder on single pieces, verdicts of made-up cells."""

import numpy as np
import pytest
import torch
from made_cells import with_results
from tiny import bert

from lorgnette.texts.example import Example
from reproductions.raganato2018 import STUDY
from reproductions.raganato2018.claims import claims
from reproductions.raganato2018.contexts import Word, _alone, _block, pairs_of, similarities, solved

TEXTS = ("the cat sat on the mat", "a dog ran", "the dog sat on the cat")
CONTENT = ("cat", "sat", "mat", "dog", "ran")


def examples():
    made = []
    for number, text in enumerate(TEXTS):
        words = tuple(text.split())
        tags = tuple("NOUN" if word in CONTENT else "DET" for word in words)
        made.append(Example(str(number), text, words=words, tags={"upos": tags}))
    return made


def planted(of_sentence):
    """Vectors that are the sentence's, or the word's, with a little noise."""
    dice = torch.Generator().manual_seed(0)
    draw = {key: torch.randn(1, 16, generator=dice) for key in [*range(6), *CONTENT]}
    words = []
    for sentence in range(6):
        for form in CONTENT[sentence % 2 : sentence % 2 + 4]:
            noise = 0.1 * torch.randn(1, 16, generator=dice)
            words.append(Word(form, sentence, draw[sentence if of_sentence else form] + noise))
    return words


def test_planted_sentence_vectors_are_told_from_word_vectors():
    like_sentence, like_word = similarities(planted(True)), similarities(planted(False))
    assert like_sentence["same_sentence"][0] > 0.9 > 0.5 > like_sentence["same_word"][0]
    assert like_word["same_word"][0] > 0.9 > 0.5 > like_word["same_sentence"][0]


def test_analogies_by_hand():
    """A plural that is the singular plus one direction is found; without such a direction it is not."""
    dice = torch.Generator().manual_seed(0)
    single, plural = torch.randn(30, 64, generator=dice), torch.randn(64, generator=dice)
    pairs = torch.stack([single, single + plural], 1).flatten(0, 1)
    assert min(solved(pairs, 3)) > 0.95
    assert max(solved(torch.randn(60, 64, generator=dice), 3)) < 0.1


def test_pairs_are_nouns_with_another_plural():
    tags = {"lemma": ("dog", "sheep", "run"), "upos": ("NOUN", "NOUN", "VERB"), "feats": ("Number=Plur",) * 3}
    assert pairs_of([Example("1", "Dogs sheep run", words=("Dogs", "sheep", "run"), tags=tags)]) == [("dog", "dogs")]


def test_attention_over_one_item_gives_its_value_and_a_second_item_does_not():
    subject = bert()
    found = _block(subject, examples(), 10, 0)
    assert found["weight_gap"] == 0
    assert found["context_gap"] < 1e-12
    assert found["alone"].shape == found["same_word"].shape == (len(subject.sites) + 1,)
    trace = next(iter(subject.trace("the cat")))
    assert (trace.context - trace.value).abs().max() > 1e-3
    assert _alone(subject, [Word("cat", 0, torch.zeros(4, 1))], 1)["weight_gap"] == 0


def made(same=0.5, sentence=0.7, state=0.1):
    noise = 0.001 * np.arange(8)[:, None]
    names = {"same_word": same, "same_sentence": sentence, "other": 0.2, "order": 0.8, "alone": 0.3}
    by_block = {name: (value + noise * (1 + k)).tolist() for k, (name, value) in enumerate(names.items())}
    by_block |= {"analogy_state": [state + 0.01 * k for k in range(8)], "analogy_input": [0.5] * 8, "analogy_pairs": 80}
    return {"by_block": by_block, "singleton": {"weight_gap": 0.0, "context_gap": 1e-7}}


@pytest.mark.parametrize(("result", "expected"), [(made(), "holds"), (made(0.9, 0.2, 0.9), "does not hold")])
def test_planted_verdicts(result, expected):
    verdicts = {claim.id: claim.verdict for claim in claims(with_results(STUDY, {"contexts-minilm": result}))}
    assert verdicts["singleton-linear-minilm"] == "holds"
    assert verdicts["singleton-differs-minilm"] == "holds"
    assert verdicts["order-minilm"] == "holds"
    assert {verdicts["sentence-like-minilm"], verdicts["analogy-minilm"]} == {expected}
