"""Nearest class directions, examples and what is not trained, against loops and on planted truth."""

import math

import pytest
import torch
import transformers
from fosse_made_up import cone, finetuned
from made_cells import finished

from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.models.classifier.presets import preset
from reproductions.fosse2023 import STUDY, grid
from reproductions.fosse2023.attention.sent import PARTS, freeze
from reproductions.fosse2023.attention.sent_claims import sent_claims, sent_tables
from reproductions.fosse2023.cones import nearest_numbers
from reproductions.fosse2023.encoders.measure import examples, named
from reproductions.fosse2023.encoders.nearest_claims import contextual_claims, nearest_claims, nearest_tables
from reproductions.fosse2023.tagging.measure import NOTHING, EncoderTagger, _sentences
from reproductions.frame.page import published


def test_the_nearest_direction_against_loops():
    vectors, labels, predicted = cone(1.0, 3, 0)
    vectors += 0.6 * torch.randn(vectors.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    units = [v / v.norm() for v in vectors]
    nearest = []
    for i, unit in enumerate(units):
        sums = [sum(u for j, u in enumerate(units) if labels[j] == c and j != i) for c in range(3)]
        nearest.append(max(range(3), key=lambda c: float(unit @ sums[c] / sums[c].norm())))
    found = nearest_numbers(vectors, labels, predicted, 3)
    share = sum(n == label for n, label in zip(nearest, labels.tolist(), strict=True)) / len(nearest)
    assert found["right"] == pytest.approx(share, abs=1e-6)
    assert 0.4 < share < 1
    assert found["as_predicted"] == pytest.approx(
        sum(n == guess for n, guess in zip(nearest, predicted.tolist(), strict=True)) / len(nearest), abs=1e-6
    )


def test_directions_that_are_there_and_labels_that_mean_nothing():
    vectors, labels, _ = cone(math.pi / 2, 3, 0)
    planted = nearest_numbers(vectors, labels, labels, 3)
    assert planted["right"] > 0.99
    assert planted["rank"]["means"] == pytest.approx(3, abs=0.05)
    assert planted["rank"]["means_centred"] == pytest.approx(2, abs=0.05)
    noise = torch.randn(3000, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    chance = nearest_numbers(noise, torch.arange(3000) % 3, torch.arange(3000) % 3, 3)
    assert chance["right"] == pytest.approx(1 / 3, abs=0.05)
    assert chance["rank"]["items"] == pytest.approx(8, abs=0.1)


def test_examples_are_pairs_of_texts_with_their_cosines():
    vectors, labels, predicted = cone(1.2, 2, 0)
    rows = examples(vectors, labels, predicted, 2)
    assert [(row["class"], row["kind"]) for row in rows] == [
        (c, kind) for c in (0, 1) for kind in ("same class", "another class")
    ]
    for row in rows:
        first, second = vectors[row["representative"]], vectors[row["text"]]
        assert row["cosine"] == pytest.approx(float(torch.cosine_similarity(first, second, dim=0)), abs=1e-6)
        assert (row["of"] == row["class"]) is (row["kind"] == "same class")
    other = rows[1]
    cosines = torch.cosine_similarity(vectors, vectors[other["representative"]][None], dim=-1)
    assert other["cosine"] == pytest.approx(float(cosines[labels != 0].max()), abs=1e-6)
    assert named(rows, [f"t{n}" for n in range(len(labels))])[0]["text"] == f"t{rows[0]['text']}"


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_not_trained(part):
    told = preset("pure-attention", vocab_size=9, width=4, layers=2, embedding_source="random", num_labels=2)
    model = SelfAttentionClassifier(told)
    freeze(model, part)
    frozen = {name for name, one in model.named_parameters() if not one.requires_grad}
    expected = {"nothing": 0, "words": 1, "attention": 8, "values": 8}
    assert len(frozen) == expected[part]
    assert not any(name.startswith("classifier") for name in frozen)


def test_words_are_cut_one_by_one_where_the_tokenizer_does_not_tell():
    class Slow:
        is_fast, eos_token_id = False, 0

        def __call__(self, word, add_special_tokens):
            return {"input_ids": [ord(letter) for letter in word]}

    one = type("E", (), {"words": ("ab", "c"), "tags": {"upos": ("X", "Y")}})
    found = _sentences(Slow(), [one], {"X": 0, "Y": 1})
    assert found.ids[0].tolist() == [97, 98, 99, 0]
    assert found.tags[0].tolist() == [0, NOTHING, 1, NOTHING]


def test_a_tagger_on_a_translators_encoder():
    config = transformers.MarianConfig(
        vocab_size=20, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, pad_token_id=1, decoder_start_token_id=1,
    )  # fmt: skip
    tagger = EncoderTagger(transformers.MarianModel(config).get_encoder(), 8, 3)
    ids, tags = torch.tensor([[3, 4, 5]]), torch.tensor([[0, NOTHING, 2]])
    out = tagger(ids, torch.ones_like(ids), labels=tags, output_hidden_states=True)
    scores = out.logits[0].detach().log_softmax(-1)
    assert float(out.loss.detach()) == pytest.approx(-float(scores[0, 0] + scores[2, 2]) / 2, abs=1e-6)
    assert len(out.hidden_states) == 2


def made_up(labels):
    """An encoder with directions; word vectors that must be trained; words that are alike in every layer."""
    seed = labels.get("seed", 0)
    if labels["part"] == "nearest":
        one = finetuned(labels["corpus"], seed)
        vectors, gold, guess = cone(math.pi / 2, len(one["labels"]), seed)
        noise = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        one["before"]["nearest"] = nearest_numbers(noise, gold, gold, len(one["labels"]))
        one["after"]["nearest"] = nearest_numbers(vectors, gold, guess, len(one["labels"]))
        rows = examples(vectors, gold, guess, len(one["labels"]))
        one["after"]["examples"] = named(rows, [str(n) for n in range(len(gold))])
        return one
    if labels["part"] == "sent":
        accuracy = (0.6 if labels["frozen"] == "words" else 0.8) + 0.001 * seed
        share = {"accuracy": 0.7, "agrees": 0.9 + 0.001 * seed, "cosine": 0.5}
        near = {"right": 0.8, "as_predicted": 0.99 + 0.001 * seed}
        return {
            "metrics": {"test": {"accuracy": accuracy}},
            "nearest": near,
            "alone": {"uniform": share, "weighed": share},
        }
    return None


def test_claims_about_directions_and_what_is_not_trained():
    cells = finished(STUDY, made_up)
    judged = {claim.id: claim for claim in (*nearest_claims(cells), *sent_claims(cells))}
    assert judged["sent-hatexplain-words"].verdict == "does not hold"
    assert judged["sent-hatexplain-words"].estimate.value == pytest.approx(-0.2)
    assert judged["sent-esnli-attention"].verdict == "holds"
    assert judged["sent-yelphat-alone"].verdict == "holds"
    assert judged["rank-esnli-minilm"].verdict == "holds"
    assert judged["rank-falls-esnli-minilm"].verdict == "holds"
    assert judged["examples-yelphat-minilm"].published.value == pytest.approx(-0.03)
    assert judged["nearest-esnli-minilm"].estimate.value < 1
    tables = {table.id: table.frame for table in (*nearest_tables(cells, published("fosse2023")), *sent_tables(cells))}
    assert len(tables["sent"]) == 3 * 4
    assert tables["nearest"]["corpus"].nunique() == 3
    assert len(tables["examples"]) == 2 * (3 + 3 + 2)
    assert not list(contextual_claims(cells, published("fosse2023")))


def test_every_new_cell_has_arguments_of_its_own():
    old = grid.encoders(False, range(5))
    for key, cell in grid.nearest(False, range(5)).items():
        same = old[key.replace("nearest-", "pretrained-").replace("minilm-", "minilm-pretrained-")]
        assert {**same.arguments, "nearest": True} == cell.arguments
    assert {cell.arguments["corpus"] for cell in grid.french((0,)).values()} == {"ud_fr_sequoia"}
