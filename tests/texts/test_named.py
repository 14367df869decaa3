"""The named data sets, on the real files where they are."""

from collections import Counter

import pytest

import lorgnette.texts as lo
from lorgnette.errors import UserError
from lorgnette.texts.annotated import majority, mean_or_first, share
from lorgnette.texts.coreference import mentions_of
from lorgnette.texts.esnli import highlighted
from lorgnette.texts.named import NAMED


def test_majority_is_more_than_half():
    assert majority([[1, 1, 0], [1, 0, 0], [0, 0, 1]]) == (1, 0, 0)
    assert majority([[1, 1], [1, 0]]) == (1, 0)
    assert majority([[1, 0], [1, 1], [0, 1], [0, 1]]) == (0, 1)


def test_mean_or_first_falls_back_to_the_first_mask_that_marks():
    assert mean_or_first([[1, 0, 1], [0, 0, 1]]) == (1, 0, 1)
    assert mean_or_first([[0, 0, 0], [1, 0, 0], [0, 0, 1]]) == (1, 0, 0)
    assert mean_or_first([[0, 0]]) == (0, 0)


def test_highlights_reach_words_split_from_their_punctuation():
    words = ("new", "medical", "manuals", ".")
    assert highlighted(" new *medical* *manuals.*", words) == (0, 1, 1, 0)
    with pytest.raises(ValueError, match="not those of the words"):
        highlighted("*a* b", words)


def test_share_is_the_same_everywhere():
    assert share("lorgnette") == share("lorgnette")
    shares = [share(str(i)) for i in range(2000)]
    assert 0.65 < sum(value < 0.7 for value in shares) / 2000 < 0.75


COUNTS = {
    ("hatexplain", "train"): 15383,
    ("hatexplain", "dev"): 1922,
    ("hatexplain", "test"): 1924,
    ("yelphat", "test50"): 300,
    ("yelphat", "test100"): 439,
    ("yelphat", "test200"): 181,
    ("yelphat", "test"): 920,
    ("esnli", "test"): 9824,
    ("eraser_movies", "validation"): 200,
    ("eraser_movies", "test"): 199,
    ("sst2", "train"): 6920,
    ("sst2", "val"): 872,
    ("conll2000", "test"): 2012,
    ("multi30k:en-fr", "val"): 1014,
    ("multi30k:de-en", "test"): 1000,
    ("parallel_en_ru:opensubtitles", None): 12178,
    ("parallel_en_ru:wmt", "test"): 27813,
    ("hansards_en_fr", "test"): 447,
    ("gap_coreference", "development"): 1378,
    ("gap_coreference", "test"): 1371,
    ("gap_coreference", "validation"): 298,
}


@pytest.mark.parametrize(("name", "split"), COUNTS)
def test_published_counts(data, name, split):
    corpus = lo.corpus(name, split=split, data=data)
    examples = list(corpus)
    assert len(examples) == COUNTS[name, split]
    assert len({example.id for example in examples}) == len(examples)
    if corpus.labels:
        assert {example.label for example in examples} == set(range(len(corpus.labels)))
    assert all(example.text.strip() for example in examples)


def test_the_first_imdb_reviews_are_balanced(data):
    corpus = lo.corpus("imdb", split="test", data=data, limit=10)
    assert corpus.labels == ("negative", "positive")
    assert [(e.label, e.extra["rating"] > 5) for e in corpus] == [(0, False), (1, True)] * 5


def test_hatexplain_rationales(data):
    train, test = (list(lo.corpus(f"hatexplain:{split}", data=data)) for split in ("train", "test"))
    assert lo.corpus("hatexplain", data=data).labels == ("normal", "hatespeech", "offensive")
    assert Counter(e.label for e in test) == {0: 782, 1: 594, 2: 548}
    assert {e.extra["rationale_from"] for e in train} == {"union"}
    assert all(e.rationale == e.extra["rationale_union"] for e in train)
    for example in test:
        masks = example.extra["rationales"]
        assert (example.label == 0) <= (not any(example.rationale))
        if masks:
            mean = [sum(marks) / len(marks) for marks in zip(*masks, strict=True)]
            expected = [float(value >= 0.5) for value in mean]
            assert list(example.rationale) == expected or not any(expected)
            assert tuple(map(max, *masks)) == example.extra["rationale_union"]


def test_yelphat_splits_are_disjoint_and_cover_all(data):
    parts = {split: list(lo.corpus("yelphat", split=split, data=data)) for split in ("train", "val", "test")}
    texts = {split: {e.extra["raw"] for e in examples} for split, examples in parts.items()}
    assert sum(map(len, parts.values())) == 5215 == len(set.union(*texts.values()))
    assert any("old" in e.extra["part"] for e in parts["train"])
    assert not any("old" in e.extra["part"] for e in parts["test"])
    assert 0.68 < len(parts["train"]) / (len(parts["train"]) + len(parts["val"])) < 0.73
    for example in parts["test"]:
        count = len(example.extra["maps"])
        assert example.rationale == tuple(float(2 * marks > count) for marks in example.extra["map_sum"])


def test_esnli_splits_and_highlights(data):
    parts = {split: list(lo.corpus("esnli", split=split, data=data)) for split in ("train", "val", "test")}
    assert lo.corpus("esnli", data=data).labels == ("entailment", "neutral", "contradiction")
    assert len(parts["train"]) + len(parts["val"]) == 9842
    assert 0.77 < len(parts["train"]) / 9842 < 0.83
    premises = [{e.id.rsplit("r", 1)[0] for e in parts[split]} for split in ("train", "val")]
    assert premises[0].isdisjoint(premises[1])
    marked = [e for examples in parts.values() for e in examples if e.rationale is not None]
    assert len(marked) == 1112
    for example in marked:
        assert example.label == 0
        start = example.extra["pair_start"]
        assert " ".join(example.words[:start]) == example.text
        assert " ".join(example.words[start:]) == example.pair
        assert example.rationale == example.extra["premise_rationale"] + example.extra["hypothesis_rationale"]
    known = next(e for e in marked if e.id == "1034985636.jpg#3r1e")
    chosen = [word for word, mark in zip(known.words, known.rationale, strict=True) if mark]
    assert chosen == ["electric", "guitar", "guitar"]


def test_movie_spans_are_the_rationale(data):
    for example in lo.corpus("eraser_movies:val", data=data, limit=20):
        inside = {i for start, end in example.extra["spans"] for i in range(start, end)}
        assert {i for i, mark in enumerate(example.rationale) if mark} == inside
        assert sum(example.extra["sentences"]) == len(example.words)


def test_conll2000_and_translations(data):
    first = next(iter(lo.corpus("conll2000:test", data=data)))
    assert first.words[:3] == ("Rockwell", "International", "Corp.")
    assert first.tags["chunk"][:3] == ("B-NP", "I-NP", "I-NP")
    pair = next(iter(lo.corpus("multi30k:en-fr", data=data)))
    assert pair.text == "Two young, White males are outside near many bushes."
    assert pair.target.startswith("Deux")
    news = next(iter(lo.corpus("parallel_en_ru:wmt", data=data)))
    assert news.extra["set"] == "newstest2012.en-ru"


def test_wikitext_is_paragraphs_with_their_article(data):
    paragraphs = list(lo.corpus("wikitext2", split="validation", data=data))
    assert not any(p.text.startswith("=") for p in paragraphs)
    assert all(p.extra["document"] for p in paragraphs)
    assert len({p.extra["document"] for p in paragraphs}) == 60


def test_a_split_that_is_not_there_lists_those_that_are(data):
    with pytest.raises(UserError, match=r"ud_en_pud has no split 'train'; there are test\."):
        lo.corpus("ud_en_pud", split="train", data=data)
    with pytest.raises(UserError, match=r"no split 'tset'; there are train, val, test\. Did you mean 'test'"):
        lo.corpus("hatexplain:tset", data=data)
    with pytest.raises(UserError, match="available splits: train, val, test, test_2016_flickr, test_2018_flickr"):
        lo.corpus("multi30k:en-cs:test_2017_flickr", data=data)
    with pytest.raises(UserError, match=r"no split 'en-xx'.*variants: en-fr"):
        lo.corpus("multi30k:en-xx", data=data)
    with pytest.raises(UserError, match="drop one of them"):
        lo.corpus("hatexplain:test", split="train", data=data)


def test_folders(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="there is no such folder"):
        lo.corpus("imdb", data=tmp_path / "nowhere")
    with pytest.raises(UserError, match="has no folder 'imdb'"):
        lo.corpus("imdb", data=tmp_path)
    folder = tmp_path / "sst2"
    folder.mkdir()
    (folder / "dev.tsv").write_text("a fine film\t1\nno\t0\n")
    monkeypatch.setenv("LORGNETTE_DATA", str(tmp_path))
    assert [(e.text, e.label) for e in lo.corpus("sst2:validation")] == [("a fine film", 1), ("no", 0)]
    with pytest.raises(UserError, match=r"no file train.tsv .*available splits: dev"):
        lo.corpus("sst2")
    with pytest.raises(UserError, match="not on the Hugging Face hub"):
        lo.corpus("yelphat")


def test_names():
    assert tuple(lo.corpora()) == (*NAMED, "planted", "english")


def test_hansards_and_its_links(data):
    examples = list(lo.corpus("hansards_en_fr", data=data))
    links = [example.extra["alignment"] for example in examples]
    assert (sum(len(each.sure) for each in links), sum(len(each.possible) for each in links)) == (4038, 17438)
    known = examples[5]
    source, target = known.text.split(), known.target.split()
    assert {(source[i], target[j]) for i, j in links[5].sure} >= {("remember", "souvenons"), ("economy", "économie")}


def test_gap_asks_for_one_of_two_names_before_the_pronoun(data):
    for example in lo.corpus("gap_coreference:test", data=data):
        one, other, pronoun = mentions_of(example)
        assert max(one.end, other.end) <= pronoun.first
        assert pronoun.chain in (one.chain, other.chain)
        assert one.chain != other.chain
        assert example.words[pronoun.head].lower() in ("he", "him", "his", "she", "her", "hers")
        assert set(example.extra["subjects"]) <= {one.head, other.head}


def test_the_paragraphs_of_the_package():
    texts = [example.text for example in lo.corpus("english")]
    assert len(texts) == 50
    assert texts[0].startswith("The ferry was late again")
    with pytest.raises(UserError, match="english has no split"):
        lo.corpus("english:test")
