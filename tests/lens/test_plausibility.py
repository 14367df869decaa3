"""Plausibility against scikit-learn, and against definitions written out."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from lorgnette.lens.rationales.plausibility import (
    average_precision,
    drawn,
    normalised_row_entropy,
    overlap,
    precision_recall_area,
    rescaled,
    roc_area,
)


@st.composite
def maps(draw):
    """Scores with ties, marks of both kinds, whole weights."""
    count = draw(st.integers(2, 40))
    scores = draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))
    marks = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    marks[0], marks[1] = True, False
    weights = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    weights[0] = weights[1] = 1
    return np.array(scores) / 6, np.array(marks), np.array(weights)


def torched(*arrays):
    return [torch.from_numpy(array) for array in arrays]


@given(maps())
@settings(max_examples=60, deadline=None)
def test_areas_are_those_of_sklearn(one):
    scores, marks, weights = one
    given_scores, given_marks, given_weights = torched(*one)
    for weight in (None, given_weights.double()):
        told = None if weight is None else weights
        expected = metrics.average_precision_score(marks, scores, sample_weight=told)
        assert average_precision(given_scores, given_marks, weight).item() == pytest.approx(expected, abs=1e-12)
        expected = metrics.roc_auc_score(marks, scores, sample_weight=told)
        assert roc_area(given_scores, given_marks, weight).item() == pytest.approx(expected, abs=1e-12)
        precision, recall, _ = metrics.precision_recall_curve(marks, scores, sample_weight=told)
        area = precision_recall_area(given_scores, given_marks, weight).item()
        assert area == pytest.approx(metrics.auc(recall, precision), abs=1e-12)


@given(maps())
@settings(max_examples=30, deadline=None)
def test_roc_area_is_the_chance_of_the_right_order(one):
    scores, marks, _ = one
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[marks] for b in scores[~marks]]
    assert roc_area(*torched(scores, marks)).item() == pytest.approx(float(np.mean(pairs)), abs=1e-12)


def test_a_weight_is_a_repetition():
    scores, marks = torch.tensor([0.9, 0.5, 0.5, 0.1]), torch.tensor([True, False, True, False])
    weight = torch.tensor([[1.0, 2, 0, 1], [0, 1, 3, 1]])
    for area in (average_precision, roc_area, precision_recall_area):
        both = area(scores, marks, weight)
        for row, result in zip(weight.long(), both, strict=True):
            again = area(scores.repeat_interleave(row), marks.repeat_interleave(row))
            assert result.item() == pytest.approx(again.item(), abs=1e-12)


def test_what_is_missing_is_nan():
    scores = torch.tensor([0.3, 0.2])
    assert math.isnan(average_precision(scores, torch.tensor([False, False])))
    assert math.isnan(roc_area(scores, torch.tensor([True, True])))


def test_rescaled_is_zero_to_one_and_keeps_the_order():
    scores = torch.tensor([0.2, 0.5, 0.3])
    assert torch.allclose(rescaled(scores), torch.tensor([0.0, 1.0, 1 / 3]))
    assert rescaled(torch.full((3,), 0.2)).tolist() == [0, 0, 0]


def test_overlap():
    a, b = torch.tensor([True, True, False]), torch.tensor([True, False, True])
    assert overlap(a, b).item() == pytest.approx(1 / 3)
    assert overlap(~a & a, ~a & a).item() == 1


def test_entropy_of_a_row():
    row = torch.tensor([0.5, 0.25, 0.25, 0.0])
    expected = -(0.5 * math.log(0.5) + 2 * 0.25 * math.log(0.25)) / math.log(4)
    assert normalised_row_entropy(row).item() == pytest.approx(expected, abs=1e-12)
    assert normalised_row_entropy(torch.ones(1)).item() == 0
    assert normalised_row_entropy(torch.full((5,), 0.2)).item() == pytest.approx(1, abs=1e-6)


def test_draws_of_a_bootstrap():
    counts = drawn(7, 50, 0)
    assert counts.shape == (50, 7)
    assert (counts.sum(1) == 7).all()
    assert torch.equal(counts, drawn(7, 50, 0))
    assert not torch.equal(counts, drawn(7, 50, 1))
