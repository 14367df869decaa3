"""Conditions of Clark et al. 2019, §4.2 and §5, measured: each head as a parser, and all heads together as one."""

from itertools import chain
from pathlib import Path
from typing import Any

from lorgnette.corpora import corpus as open_corpus
from lorgnette.corpora.corpus import Corpus
from lorgnette.lenses.attention_probe.lens import FEATURES, AttentionProbe
from lorgnette.lenses.coreference.lens import Coreference, best_antecedents
from lorgnette.lenses.relations.lens import Relations, best_heads
from lorgnette.looking.controls import shuffled
from lorgnette.looking.look import look
from lorgnette.subject import Subject
from lorgnette.syntax.attachment import SCORES
from reproductions.clark2019.stanford import UD_RELATIONS
from reproductions.frame.conditions import RANDOM, SHUFFLED, opened, with_random_weights
from reproductions.frame.readings import plain

TREEBANK, PARTS = "ud_en_ewt", ("dev", "test")
PASSAGES = "ud_en_gum:passages"
VECTORS = "glove_100d"


def relations(model: str, condition: str, sentences: int, seed: int, **local: Any) -> dict[str, Any]:
    """The best head and the best offset for each relation and way, chosen on one half and told from the other."""
    subject = _subject(model, condition, seed, **local)
    texts = treebank(sentences, condition, seed, local.get("data"))
    result = look(subject, texts, [Relations(UD_RELATIONS)], progress=False, truncate=True)["relations"]
    return {
        **_origin(subject, texts),
        "words": int(result.data.attrs["words"]),
        "words_without_a_piece": int(result.data.attrs["words_without_a_piece"]),
        "rows": best_heads(result).to_dict("records"),
    }


def parser(
    model: str, condition: str, sentences: int, steps: int, seed: int, vectors: bool = True, **local: Any
) -> dict[str, Any]:
    """UAS of the trained combinations of all heads, with and without GloVe, on the sentences left out of training."""
    subject = _subject(model, condition, seed, **local)
    texts = treebank(sentences, condition, seed, local.get("data"))
    where = Path(str(local.get("data")), VECTORS) if vectors else None
    lens = AttentionProbe(where, texts=sentences, steps=steps, seed=seed)
    data = look(subject, texts, [lens], progress=False, truncate=True)["attention-probe"].data
    found = {
        name: {score + tail: plain(data[score + tail].sel(features=name).values) for score in SCORES for tail in TAILS}
        for name in FEATURES
        if vectors or name == "attention"
    }
    following = {score + tail: float(data[f"head_is_next_{score}{tail}"]) for score in SCORES for tail in TAILS}
    return {**_origin(subject, texts), "features": found, "head_is_next": following, "steps": steps}


def antecedents(model: str, condition: str, sentences: int, seed: int, **local: Any) -> dict[str, Any]:
    """The head that finds antecedents best, chosen on one half of GUM's passages and told from the other."""
    subject = _subject(model, condition, seed, **local)
    made = list(open_corpus(PASSAGES, split="test", data=local.get("data")))[:sentences]
    texts = Corpus.of(made, name=PASSAGES)
    result = look(subject, texts, [Coreference()], progress=False, truncate=True)["coreference"]
    counts = {name: int(result.data.attrs[name]) for name in ("mentions", "with_antecedent")}
    return {**_origin(subject, texts), **counts, "rows": best_antecedents(result).to_dict("records")}


TAILS = ("", "_se")


def treebank(sentences: int, condition: str, seed: int, data: Any) -> Corpus:
    """So many sentences, spread evenly over the development and the test part."""
    every = list(chain.from_iterable(open_corpus(TREEBANK, split=part, data=data) for part in PARTS))
    count = min(sentences, len(every))
    taken = [every[k * len(every) // count] for k in range(count)]
    if condition == SHUFFLED:
        taken = [shuffled(example, seed) for example in taken]
    return Corpus.of(taken, name=TREEBANK)


def _subject(model: str, condition: str, seed: int, **local: Any) -> Subject:
    subject = opened(model, local.get("models"), local.get("device"))
    return with_random_weights(subject, seed) if condition == RANDOM else subject


def _origin(subject: Subject, texts: Corpus) -> dict[str, Any]:
    return {
        "weights_sha256": subject.weights_hash,
        "corpus": texts.name,
        "corpus_fingerprint": texts.fingerprint(),
        "sentences": len(list(texts)),
        "device": subject.device.type,
    }
