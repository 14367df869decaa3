"""Attention probe: the scores in loops, planted heads, the bounded sample, bad input."""

import math

import numpy as np
import pytest
import torch
from tiny import TREEBANK, bert, gpt2, planted

from benchmarks.planted_heads import HEADS
from lorgnette.errors import UserError
from lorgnette.lens.attention_probe.lens import AttentionProbe
from lorgnette.lens.attention_probe.probe import (
    FARTHEST,
    HIDDEN,
    AttentionAndVectors,
    AttentionOnly,
    Sentences,
    VectorsAndDistance,
    log_odds,
    loss,
)
from lorgnette.looking.look import look
from lorgnette.statistics.hashing import text_key
from lorgnette.testing import assert_close, run_lens

K, N, D = 3, 4, 5


def sentences(texts=2):
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.rand(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    there = torch.ones(texts, N, dtype=torch.bool)
    there[1, 3] = False
    gold = torch.tensor([[1, 4, 1, 2], [4, 0, -1, -1]])
    return Sentences(draw(texts, K, N, N), draw(texts, K, 2, N), there, gold, draw(texts, N, D))


def filled(probe):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in probe.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return probe.double().requires_grad_(False)


def written_out(probe, s, t, j, i):
    """The score of candidate i (N: the root) for dependent j, head by head."""
    alpha, special = s.attention[t], s.special[t]
    if isinstance(probe, VectorsAndDistance):
        total = 0.0
        for unit in range(HIDDEN):
            inside = sum(s.vectors[t, j, d] * probe.dependent[d, unit] for d in range(D))
            if i == N:
                inside = inside + probe.distance[-1, unit]
            else:
                inside = inside + sum(s.vectors[t, i, d] * probe.governor[d, unit] for d in range(D))
                inside = inside + probe.distance[max(-FARTHEST, min(FARTHEST, i - j)) + FARTHEST, unit]
            total += math.tanh(inside) * probe.out[unit, 0].item()
        return total
    plain = probe.plain if isinstance(probe, AttentionAndVectors) else probe
    total = plain.bias.item() if i == N else 0.0
    for k in range(K):
        if i == N:
            weights = [plain.root[n, k].item() for n in range(2)]
            if isinstance(probe, AttentionAndVectors):
                weights = [w + (probe.root_of_dependent[n, k] @ s.vectors[t, j]).item() for n, w in enumerate(weights)]
            total += sum(w * special[k, n, j].item() for n, w in enumerate(weights))
        else:
            weights = [plain.own[n, k].item() for n in range(2)]
            if isinstance(probe, AttentionAndVectors):
                weights = [
                    w + (probe.of_head[n, k] @ s.vectors[t, i] + probe.of_dependent[n, k] @ s.vectors[t, j]).item()
                    for n, w in enumerate(weights)
                ]
            total += weights[0] * alpha[k, j, i].item() + weights[1] * alpha[k, i, j].item()
    return total


@pytest.mark.parametrize("kind", [AttentionOnly, AttentionAndVectors, VectorsAndDistance])
def test_scores_are_those_written_out(kind):
    texts, probe = sentences(), filled(kind(K, D))
    odds = log_odds(probe, texts)
    total, count = 0.0, 0
    for t in range(2):
        for j in range(N):
            scores = {}
            for i in range(N + 1):
                if i == j or (i < N and not texts.mask[t, i]):
                    assert odds[t, j, i] == -torch.inf
                else:
                    scores[i] = written_out(probe, texts, t, j, i)
                    assert odds[t, j, i].item() == pytest.approx(scores[i], abs=1e-9)
            if (gold := texts.gold[t, j].item()) >= 0:
                total += math.log(sum(math.exp(x) for x in scores.values())) - scores[gold]
                count += 1
    assert loss(probe, texts).item() == pytest.approx(total / count)


def test_planted_heads_are_combined_into_the_tree_and_the_control_is_not():
    heads, texts = planted()
    data = look(heads, texts, [AttentionProbe()], progress=False)["attention-probe"].data
    assert (data.uas.sel(features="attention") == 1.0).all()
    weight = data.weight.sel(stack="encoder", layer=1, way="to_head")
    assert int(weight.values.argmax()) == HEADS.index("tree")
    assert data.uas.sel(features="attention_vectors").isnull().all()
    control, texts = planted(control=True)
    data = look(control, texts, [AttentionProbe()], progress=False)["attention-probe"].data
    assert data.uas.sel(features="attention").max() < data.head_is_next_uas + 0.05


def test_vectors(tmp_path):
    """Vectors that tell words apart help on a treebank where a word has always the same head."""
    words = sorted({word.lower() for example in TREEBANK for word in example.words})
    path = tmp_path / "glove.txt"
    path.write_text("".join(f"{w} {' '.join(map(str, np.eye(len(words))[n]))}\n" for n, w in enumerate(words)))
    lens = AttentionProbe(path, development=0.5, steps=6)
    data = look(bert(), TREEBANK, [lens], progress=False)["attention-probe"].data
    assert data.uas.notnull().all()
    assert (data.uas_count == data.head_is_next_uas_count).all()
    assert data.attrs["vectors"] == str(path)


def test_the_same_texts_are_kept_whatever_the_order():
    tiny = bert()
    order = sorted(TREEBANK, key=lambda example: text_key("attention-probe", example.id) >> 11)
    wanted = {text_key("attention-probe", example.id) >> 11 for example in order[:3]}
    lenses = []
    for texts in (TREEBANK, TREEBANK[::-1]):
        lens = run_lens(AttentionProbe(texts=3, steps=20), tiny, [tiny.encode([text]) for text in texts])
        rows = lens.sentences.sample.rows()
        assert set(rows.numbers.tolist()) == wanted
        assert len(rows["marks"]) == sum(len(example.words) for example in order[:3])
        lenses.append(lens)
    first, second = (
        run_lens(AttentionProbe(texts=3, steps=20), tiny, [tiny.encode(list(part))])
        for part in (TREEBANK[:4], TREEBANK[4:])
    )
    first.merge_state(second)
    for other in lenses:
        assert_close(first.compute().data, other.compute().data, "kept", 1e-9)


def test_a_model_without_special_tokens():
    data = look(gpt2(), TREEBANK, [AttentionProbe(development=0.5, steps=4)], progress=False)["attention-probe"].data
    assert data.uas.sel(features="attention").notnull().all()


def test_nothing_held_out():
    data = look(bert(), TREEBANK[:1], [AttentionProbe()], progress=False)["attention-probe"].data
    assert data.uas.isnull().all()
    assert (data.weight_count == 0).all()


@pytest.mark.parametrize("options", [{"development": 1.0}, {"steps": 0}, {"texts": 0}, {"rate": 0.0}])
def test_bad_input_is_one_line(options):
    with pytest.raises(UserError, match="of the lens 'attention-probe' must be") as caught:
        AttentionProbe(**options)
    assert "\n" not in str(caught.value)
