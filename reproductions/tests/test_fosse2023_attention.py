"""What is measured of a pure-attention model, against slow loops on a small model and made-up posts."""

import itertools
import json

import pytest
import torch
from made_up import write_hatexplain, write_vectors

from lorgnette.errors import UserError
from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.models.classifier.presets import preset
from lorgnette.models.classifier.tokenizer import build_tokenizer
from lorgnette.subject import Subject
from lorgnette.texts import Example
from reproductions.fosse2023 import grid
from reproductions.fosse2023.attention import explained, geometry, measure, replaced, texts
from reproductions.frame.settings import Machine

WORDS = ["awful", "great", "film", "plot", "the", "a", "music", "dull"]


def make(layers: int) -> Subject:
    torch.manual_seed(layers)
    tokenizer = build_tokenizer(vocabulary=WORDS)
    config = preset("pure-attention", layers=layers, width=8, vocab_size=len(tokenizer), num_labels=3)
    model = SelfAttentionClassifier(config).double().eval()
    with torch.no_grad():
        for weights in model.parameters():  # far from even attention
            weights.mul_(2.0).add_(torch.randn_like(weights) * 0.3)
    return Subject(model, tokenizer)


def some_texts(subject: Subject, count: int = 7) -> list[texts.Text]:
    draw = torch.Generator().manual_seed(3)
    out = []
    for number in range(count):
        length = int(torch.randint(2, 9, (1,), generator=draw))
        ids = torch.randint(3, 3 + len(WORDS), (length,), generator=draw)
        words = tuple(WORDS[i - 3] for i in ids.tolist())
        marks = tuple(float(at % 3 == 0) for at in range(length))
        example = Example(str(number), " ".join(words), words=words, label=number % 3, rationale=marks)
        out.append(texts.Text(number, torch.cat([torch.tensor([2]), ids]), torch.arange(-1, length), example))
    return out


def alone(subject: Subject, text: texts.Text) -> geometry.Pass:
    one = next(texts.batches([text], "cpu"))
    with torch.no_grad():
        return geometry.passed(subject, one)


def pair_mean(rows: torch.Tensor) -> float:
    cosines = [torch.cosine_similarity(a, b, dim=0) for a, b in itertools.combinations(rows, 2)]
    return float(sum(cosines) / len(cosines))


@pytest.mark.parametrize("layers", [1, 3])
def test_means_over_texts_are_those_of_loops_over_pairs(layers):
    subject = make(layers)
    items = some_texts(subject)
    found = geometry.measured(subject, items, {"published": [0, 1, 2], "whole": list(range(7))})
    runs = [alone(subject, text) for text in items]
    for name, members in (("published", range(3)), ("whole", range(7))):
        got = found[name]
        assert got["texts"] == len(members)
        for layer in range(layers):
            some = [runs[m] for m in members]
            assert got["key"][layer] == pytest.approx(
                sum(pair_mean(r.calls[layer].key[0, 0]) for r in some) / len(some), abs=1e-6
            )
            assert got["value"][layer] == pytest.approx(
                sum(pair_mean(r.calls[layer].value[0, 0]) for r in some) / len(some), abs=1e-6
            )
            assert got["state"][layer + 1] == pytest.approx(
                sum(pair_mean(r.states[layer + 1][0]) for r in some) / len(some), abs=1e-6
            )
            rows = [r.calls[layer].weights[0, 0, 0] for r in some]
            even = [float(-(row * row.log()).sum() / torch.tensor(float(len(row))).log()) for row in rows]
            assert got["entropy"][layer] == pytest.approx(sum(even) / len(even), abs=1e-6)
        # State 0: the word vectors before positions, without <cls>; a text of one word would have no pair.
        vectors = [subject.model.embeddings.word_vectors(items[m].ids[None])[0, 1:].detach() for m in members]
        assert got["state"][0] == pytest.approx(sum(map(pair_mean, vectors)) / len(vectors), abs=1e-6)
        right = [int(runs[m].logits.argmax()) == items[m].example.label for m in members]
        assert got["accuracy"] == pytest.approx(sum(right) / len(right))
    one = torch.linalg.svdvals(runs[0].calls[0].value[0, 0])
    share = one / one.sum()
    rank = geometry._rank(runs[0].calls[0].value[:, 0], torch.ones(1, len(items[0].ids)).bool(), torch.tensor([True]))
    assert float(rank) == pytest.approx(float((-(share * share.log()).sum()).exp()), rel=1e-6)


def test_centred_similarity_is_that_of_pairs_less_one_constant():
    subject, members = make(2), [0, 2, 5]
    items = some_texts(subject)
    found = geometry.centred_similarity(subject, items, members)
    runs = [alone(subject, text) for text in items]
    for layer in range(2):
        for name in ("key", "value"):
            vectors = [getattr(run.calls[layer], name)[0, 0] for run in runs]
            constant = torch.cat(vectors).mean(0)
            raw, centred = ([pair_mean(vectors[m] - less) for m in members] for less in (0.0, constant))
            assert found[name][layer] == pytest.approx(sum(raw) / 3, abs=1e-9)
            assert found[f"{name}_centred"][layer] == pytest.approx(sum(centred) / 3, abs=1e-9)


def test_a_constant_in_keys_and_values_leaves_outputs_and_centred_similarity_alone():
    subject = make(1)
    items = some_texts(subject)
    before = geometry.centred_similarity(subject, items, range(7)), alone(subject, items[0]).logits
    attention = subject.model.encoder.layers[0].attention
    with torch.no_grad():
        attention.key.bias += 5.0
        attention.value.bias += 5.0
        attention.output.bias -= attention.output.weight.sum(1) * 5.0  # the weights of a row sum to one
    after = geometry.centred_similarity(subject, items, range(7)), alone(subject, items[0]).logits
    assert torch.allclose(before[1], after[1], atol=1e-9)
    for name in ("key", "value"):
        assert after[0][name][0] > before[0][name][0] + 0.1
        assert after[0][f"{name}_centred"] == pytest.approx(before[0][f"{name}_centred"], abs=1e-9)


def test_a_text_without_a_pair_is_left_out_and_counted():
    subject = make(1)
    items = some_texts(subject, 3)
    short = texts.Text(3, torch.tensor([2, 4]), torch.tensor([-1, 0]), Example("s", "great", words=("great",), label=0))
    found = geometry.measured(subject, [*items, short], {"published": [0], "whole": [0, 1, 2, 3]})
    assert found["whole"]["without"] == {"state": [1, 0]}  # one word: no pair of word vectors, but <cls> and the word


def test_maps_are_those_of_single_texts():
    subject = make(2)
    items = some_texts(subject)
    single = explained.one_word_outputs(subject, items)
    for text in items:
        run = alone(subject, text)
        batch = next(texts.batches([text], "cpu"))
        scores = explained.token_scores(run, batch, single)
        first, second = (0.5 * call.weights[0, 0] + 0.5 * torch.eye(len(text.ids)) for call in run.calls)
        assert torch.allclose(scores["rollout"][0], (second @ first)[0])
        for place, token in enumerate(text.ids.tolist()[1:], 1):
            pair = texts.Text(0, torch.tensor([2, token]), torch.tensor([-1, 0]), text.example)
            cosine = torch.cosine_similarity(alone(subject, pair).cls[0], run.cls[0], dim=0)
            assert float(scores["cosine"][0, place]) == pytest.approx(float(cosine), abs=1e-6)


def test_tokens_become_words():
    row, word = torch.tensor([0.1, 0.2, 0.4], dtype=torch.float64), torch.tensor([0, 0, 2])
    assert explained.on_words(row, word, 3, average=False).tolist() == pytest.approx([0.3, 0.0, 0.4])
    assert explained.on_words(row, word, 3, average=True).tolist() == pytest.approx([0.15, 0.1, 0.4])


def test_faithfulness_is_that_of_texts_made_by_hand():
    subject = make(1)
    items = some_texts(subject)
    found = explained.explained(subject, items)["faithfulness"]["attention"]
    expected = []
    for text in items:
        run = alone(subject, text)
        before = run.logits[0].softmax(-1)
        weights = run.calls[-1].weights[0, 0, 0].tolist()
        count = -(-(len(text.ids) - 1) // 2)  # half of the words, rounded up
        first = sorted(range(1, len(text.ids)), key=lambda place: -weights[place])[:count]
        rest = torch.tensor([token for place, token in enumerate(text.ids.tolist()) if place not in first])
        after = alone(subject, texts.Text(0, rest, torch.zeros_like(rest), text.example)).logits[0].softmax(-1)
        expected.append(float((before - after)[before.argmax()]))
    assert found["comprehensiveness_by_share"][-1] == pytest.approx(sum(expected) / len(expected), abs=1e-6)
    assert found["comprehensiveness"] == pytest.approx(sum(found["comprehensiveness_by_share"]) / 5)


def test_what_is_measured_can_be_written_also_where_cosines_are_negative():
    for layers in (1, 2, 5):
        subject = make(layers)
        with torch.no_grad():  # words that pull <cls> apart
            subject.model.embeddings.words.weight.mul_(20.0)
            subject.model.embeddings.cls.zero_()
        items = some_texts(subject, 20)
        batch = next(texts.batches(items, "cpu"))
        with torch.no_grad():
            run = geometry.passed(subject, batch)
            cosines = explained.token_scores(run, batch, explained.one_word_outputs(subject, items))["cosine"]
        assert bool((cosines < 0).any())
        found = {
            **explained.explained(subject, items),
            "replaced": replaced.replaced(subject, items, 0),
            "groups": geometry.measured(subject, items, texts.groups("hatexplain", items)),
        }
        json.dumps(found, allow_nan=False)
        assert found["plausibility"]["cosine"]["all"]["entropy"] is None  # of shares only
        assert 0 < found["plausibility"]["attention"]["all"]["entropy"] <= 1


def test_the_adversary_tries_every_key_of_the_last_layer():
    subject = make(1)
    for text in some_texts(subject):
        batch = next(texts.batches([text], "cpu"))
        before, slopes = replaced.slopes_of(subject, batch)
        predicted = before.logits.argmax(-1)
        tap = replaced.Adversarial(subject.model, slopes, predicted)
        with torch.no_grad():
            after = geometry.passed(subject, batch, tap)
        reached = float(replaced.margin(after.logits, predicted))

        class One(replaced.Uniform):
            key = 0

            def weights(self, call, weights):
                return torch.zeros_like(weights).index_fill_(-1, torch.tensor([self.key]), 1.0)

        tried = []
        for key in range(len(text.ids)):
            One.key = key
            with torch.no_grad():
                tried.append(float(replaced.margin(geometry.passed(subject, batch, One()).logits, predicted)))
        assert reached == pytest.approx(min(tried), abs=1e-9)


def test_slopes_are_differences_of_the_margin():
    subject = make(2)
    batch = next(texts.batches(some_texts(subject)[:1], "cpu"))
    run, slopes = replaced.slopes_of(subject, batch)
    predicted = run.logits.argmax(-1)
    step = torch.randn(slopes[0].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 1e-6

    class Nudge(replaced.Tap):
        sign = 1

        def context(self, call, context):
            return context + self.sign * step if call.site.layer == 0 else context

    ends = []
    for Nudge.sign in (1, -1):
        with torch.no_grad():
            ends.append(float(replaced.margin(geometry.passed(subject, batch, Nudge()).logits, predicted)))
    assert (ends[0] - ends[1]) / 2 == pytest.approx(float((slopes[0] * step).sum()), rel=1e-4)


def test_weights_that_change_nothing_flip_nothing():
    """Values that are all equal: whatever the weights, the answer is the same, the title's extreme."""
    subject = make(2)
    items = some_texts(subject)
    with torch.no_grad():
        for layer in subject.model.encoder.layers:
            layer.attention.value.weight.zero_()
    found = replaced.replaced(subject, items, seed=0)
    sims = geometry.measured(subject, items, {"published": [0], "whole": list(range(7))})["whole"]["value"]
    assert sims == pytest.approx([1.0, 1.0])
    for kind in replaced.KINDS:
        assert found[kind]["flipped"] == 0
        assert found[kind]["cosine"] == pytest.approx(1.0)
        assert found[kind]["accuracy"] == found["trained"]["accuracy"]


def test_replaced_weights_do_flip_where_values_differ():
    found = replaced.replaced(make(1), some_texts(make(1), 30), seed=0)
    assert found["adversarial"]["flipped"] > found["permuted"]["flipped"] > 0
    assert found["adversarial"]["lost"] > found["uniform"]["lost"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fosse")
    write_hatexplain(folder, {"train": 60, "val": 30, "test": 30})
    write_vectors(folder)
    return folder


def test_a_cell_trains_and_measures(data, tmp_path):
    size = grid.Size(epochs=1, batch_size=16, corpora=("hatexplain",), depths=(2,), strengths=(0.0,), late=False)
    wanted = grid.attention(size, (0,))
    machine = Machine(data=str(data), scratch=tmp_path)
    grid.prepare(machine, wanted)
    found = measure.trained(**next(iter(wanted.values())).arguments, machine=machine)
    assert found["groups"]["whole"]["accuracy"] == pytest.approx(found["metrics"]["test"]["accuracy"])
    assert found["replaced"]["trained"]["accuracy"] == pytest.approx(found["metrics"]["test"]["accuracy"])
    assert [len(found["groups"]["published"][name]) for name in ("key", "value", "state")] == [2, 2, 3]
    assert found["plausibility"]["cosine"]["all"]["texts"] == 20
    assert found["faithfulness"]["random"]["texts"] == 20


def test_the_order_of_the_cells():
    wanted = grid.attention(grid.FULL, (0, 1, 2, 3, 4))
    assert len(wanted) == 10 * 3 * 5 + 3 * (3 * 3 + 2 * 3 * 3)
    keys = list(wanted)
    assert "seed0" in keys[29]  # one seed of everything first
    assert "seed1" in keys[30]
    assert all("-late-" in key for key in keys[150:177])
    assert all("-random-" in key for key in keys[177:])
    assert wanted[keys[150]].arguments["keep_last"]
    assert "keep_last" not in wanted[keys[149]].arguments
    assert keys[0] == "attention-hatexplain-glove-100-L1-lambda0-seed0"


def test_data_that_are_not_there_are_told(tmp_path):
    machine = Machine(data=str(tmp_path / "nowhere"), scratch=tmp_path)
    with pytest.raises(UserError, match="no such folder"):
        grid.prepare(machine, grid.attention(grid.FULL, (0,)))
