"""The planted corpus keeps its promises."""

from collections import Counter

import pytest

import lorgnette.texts as lo
from lorgnette.errors import UserError
from lorgnette.texts.planted import SIZES, lexicon, planted_corpus
from lorgnette.texts.treebank import is_tree


@pytest.fixture(scope="module")
def splits():
    return {split: list(lo.corpus("planted", split=split)) for split in SIZES}


def everything(splits):
    return [example for examples in splits.values() for example in examples]


def test_sizes_and_disjoint_texts(splits):
    assert {split: len(examples) for split, examples in splits.items()} == SIZES
    texts = [example.text for example in everything(splits)]
    assert len(set(texts)) == len(texts)
    assert len(lo.corpus("planted:test")) == 1000


def test_the_same_seed_gives_the_same_texts(splits):
    assert list(lo.corpus("planted:val")) == splits["val"]
    other = planted_corpus("val", seed=1)
    assert [e.text for e in other] != [e.text for e in splits["val"]]
    assert other.fingerprint() != planted_corpus("val").fingerprint() == planted_corpus("dev").fingerprint()


def projective(heads) -> bool:
    arcs = [(min(word, head), max(word, head)) for word, head in enumerate(heads, 1)]
    return not any(a < c < b < d for a, b in arcs for c, d in arcs)


def test_every_tree_is_one_projective_tree(splits):
    for example in everything(splits):
        assert is_tree(example.heads)
        assert projective(example.heads)
        root = example.heads.index(0)
        assert example.relations[root] == "root"
        assert example.relations.count("root") == 1
        assert example.text == " ".join(example.words)


def test_relations_and_parts_of_speech_fit(splits):
    wanted = {"det": "DET", "case": "ADP", "cop": "AUX", "aux": "AUX", "cc": "CCONJ", "mark": "SCONJ", "punct": "PUNCT"}
    for example in splits["test"]:
        for relation, upos in zip(example.relations, example.tags["upos"], strict=True):
            assert wanted.get(relation, upos) == upos


def test_lengths_classes_and_negation(splits):
    lengths = [len(example.words) for example in everything(splits)]
    assert min(lengths) == 5
    assert 25 <= max(lengths) <= 30
    train = splits["train"]
    assert 0.45 < sum(e.label for e in train) / len(train) < 0.55
    assert 0.25 < sum(e.extra["negated"] for e in train) / len(train) < 0.4


def polarity(word: str) -> int | None:
    for side in (0, 1):
        if word in lexicon.ADJECTIVES[side] or word in lexicon.VERBS[side]:
            return side
    return None


def test_the_class_follows_from_the_rationale_alone(splits):
    for example in everything(splits):
        decided = set()
        for index, word in enumerate(example.words):
            if polarity(word) is None:
                continue
            assert example.rationale[index] == 1
            modifiers = [i for i, head in enumerate(example.heads) if head == index + 1 and example.rationale[i]]
            negated = any(example.words[i] == "not" for i in modifiers if example.relations[i] == "advmod")
            decided.add(1 - polarity(word) if negated else polarity(word))
        assert decided == {example.label}
        marked = {w for w, mark in zip(example.words, example.rationale, strict=True) if mark}
        assert all(polarity(w) is not None or w in ("not", *lexicon.INTENSIFIERS) for w in marked)


def test_some_negators_decide_nothing(splits):
    idle = [e for e in splits["train"] if "not" in e.words and not e.extra["negated"]]
    assert len(idle) > 50


def test_pairs_have_the_same_bag_and_opposite_classes(splits):
    for split, examples in splits.items():
        twins: dict[str, list] = {}
        for place, example in enumerate(examples):
            if "pair_id" in example.extra:
                twins.setdefault(example.extra["pair_id"], []).append((place, example))
        assert twins, split
        for (at, one), (after, other) in twins.values():
            assert after == at + 1
            assert Counter(one.words) == Counter(other.words)
            assert {one.label, other.label} == {0, 1}
            assert one.heads == other.heads
    assert all("pair_id" in example.extra for example in splits["pairs"])


def test_a_bag_of_words_is_at_chance_on_the_pairs_and_good_elsewhere(splits):
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    bags = CountVectorizer(token_pattern=r"\S+")
    train = splits["train"]
    model = LogisticRegression(max_iter=300).fit(bags.fit_transform([e.text for e in train]), [e.label for e in train])

    def accuracy(examples):
        return model.score(bags.transform([e.text for e in examples]), [e.label for e in examples])

    assert accuracy(splits["pairs"]) == 0.5
    plain = [e for e in splits["test"] if not e.extra["negated"]]
    assert accuracy(plain) > 0.9


def test_rare_words_are_rare_and_marked(splits):
    counts = Counter(word for example in splits["train"] for word in example.words)
    rarest_other = min(count for word, count in counts.items() if word not in lexicon.RARE)
    assert max(counts[word] for word in lexicon.RARE) * 2 < rarest_other
    assert min(counts[word] for word in lexicon.RARE) > 0
    for example in splits["train"]:
        assert [example.words[i] for i in example.extra["rare"]] == [w for w in example.words if w in lexicon.RARE]


def test_bad_requests():
    with pytest.raises(UserError, match=r"no split 'trian'; there are train, val, test, pairs. Did you mean 'train'"):
        lo.corpus("planted:trian")
    with pytest.raises(UserError, match="even size"):
        planted_corpus("pairs", size=3)
    with pytest.raises(UserError, match="more than one split"):
        lo.corpus("planted:test", split="train")
