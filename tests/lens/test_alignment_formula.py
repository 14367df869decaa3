"""Word alignment: the papers' definitions written out."""

import random

import pytest
import torch

from lorgnette.lens.alignment.formulas import agreement, alignment_error_rate, links, predicted_words, word_scores


def oracle_word_scores(scores, query_word, key_word, words):
    """Sum over the source word's pieces, mean over the target word's rows."""
    out = []
    for target in range(words[0]):
        rows = [r for r, word in enumerate(query_word) if word == target]
        out.append([])
        for source in range(words[1]):
            pieces = [k for k, word in enumerate(key_word) if word == source]
            out[-1].append(sum(sum(scores[r][k] for k in pieces) for r in rows) / len(rows))
    return out


def test_word_scores_are_sums_to_and_means_from():
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(2, 6, 7, generator=generator, dtype=torch.float64)
    query_word, key_word = [-1, 0, 0, 1, 2, -1], [0, 1, 1, 1, 2, -1, -1]
    found = word_scores(scores, torch.tensor(query_word), torch.tensor(key_word), (3, 3))
    for head in range(2):
        expected = oracle_word_scores(scores[head].tolist(), query_word, key_word, (3, 3))
        assert torch.allclose(found[head], torch.tensor(expected, dtype=torch.float64), atol=1e-12)


def test_the_predicted_word_is_that_of_the_next_row():
    assert predicted_words(torch.tensor([-1, 0, 0, 1])).tolist() == [0, 0, 1, -1]


def test_a_word_without_pieces_has_no_link():
    scores = word_scores(torch.rand(2, 2), torch.tensor([0, 2]), torch.tensor([0, 2]), (3, 3))
    source, there = links(scores)
    assert there.tolist() == [True, False, True]
    assert set(source[there].tolist()) <= {0, 2}


@pytest.mark.parametrize("seed", range(20))
def test_error_rate_is_that_of_the_sets(seed):
    rng = random.Random(seed)
    targets, sources = rng.randint(1, 6), rng.randint(1, 6)
    found = {(rng.randrange(sources), target) for target in range(targets)}
    pick = lambda: {(rng.randrange(sources), rng.randrange(targets)) for _ in range(rng.randint(0, 6))}  # noqa: E731
    sure = pick()
    possible = sure | pick()
    expected = 1 - (len(found & sure) + len(found & possible)) / (len(found) + len(sure))
    source = torch.tensor([s for s, _ in sorted(found, key=lambda link: link[1])])
    matrices = [torch.zeros(targets, sources, dtype=torch.bool) for _ in range(2)]
    for matrix, gold in zip(matrices, (sure, possible), strict=True):
        for s, t in gold:
            matrix[t, s] = True
    counts = agreement(source, torch.ones(targets, dtype=torch.bool), *matrices)
    assert [c.item() for c in counts] == [len(found & sure), len(found & possible), len(found)]
    assert alignment_error_rate(*counts, len(sure)).item() == pytest.approx(expected)


def test_nothing_to_find_and_nothing_found_is_no_error():
    zero = torch.zeros((), dtype=torch.long)
    assert alignment_error_rate(zero, zero, zero, 0).item() == 0
