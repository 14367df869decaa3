"""Choosing heads that align words: a planted translator, the control, error rates by hand, files, bad input."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t as student

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.lens.alignment.linking import Linker, counted, error_difference, error_rate
from lorgnette.looking.aligning import pharaoh_line
from lorgnette.texts.alignments import Links, read_alignments
from lorgnette.texts.example import Example

sys.path.insert(0, str(Path(__file__).parent.parent / "lens"))
from test_alignment import HEADS, WORDS, copies, listed, reversals, translator


def pairs():
    """Lists translated backwards, of several beginnings, so that both parts have some."""
    out = []
    for start in range(3):
        for length in range(3, WORDS - start + 1):
            words = listed(WORDS - length, WORDS)
            gold = " ".join(f"{length - 1 - k}-{k}" for k in range(length))
            text, target = " ".join([*words, "."]), " ".join(words[::-1])
            out.append(Example(f"{start} {length}", text, target=target, extra={"alignment": gold}))
    return out


def test_the_planted_heads_are_chosen_and_write_the_gold_links(tmp_path):
    aligner = lo.align(translator(), pairs(), progress=False)
    assert aligner.development + aligner.test == len(pairs())
    assert min(aligner.development, aligner.test) > 5
    (head,) = aligner.chosen.heads
    assert (HEADS[head[1] - 1], aligner.chosen.reading) in {
        ("predecessor", "output"), ("same", "input"), ("sink", "input")}  # fmt: skip
    table = aligner.to_dataframe().set_index(["measure", "heads"])
    assert table["error"].min() <= 0.05
    assert (table["difference"] >= -1e-12).all() or table["error"].min() > 0
    path = aligner.save(tmp_path / "links.txt", reversals(), progress=False)
    written = read_alignments(path)
    assert len(written) == len(reversals())
    right = sum(
        len(links.sure & {tuple(map(int, link.split("-"))) for link in text.extra["alignment"].split()})
        for links, text in zip(written.values(), reversals(), strict=True)
    )
    assert right / sum(len(text.target.split()) for text in reversals()) >= 0.95


def test_the_control_is_at_chance():
    aligner = lo.align(translator(plant=False), pairs(), progress=False)
    assert aligner.to_dataframe()["error"].min() > 0.6


def test_errors_are_those_of_the_lens():
    """The best head by weights, on the test texts: its error and interval equal those of the lens there."""
    aligner = lo.align(translator(plant=False), copies(), reversals(), progress=False)
    data = lo.look(translator(plant=False), reversals(), [lo.lens.Alignment()], progress=False)["alignment"].data
    for rate in aligner.rates:
        if len(rate.linker.heads) != 1:
            continue
        [(layer, head)] = rate.linker.heads
        cell = data.sel(stack="cross", layer=layer, head=head, measure=rate.linker.measure, reading=rate.linker.reading)
        assert rate.error == pytest.approx(cell.aer.item(), abs=1e-12)
        assert rate.precision == pytest.approx(cell.precision.item(), abs=1e-12)
        assert rate.recall == pytest.approx(cell.recall.item(), abs=1e-12)
        half = student.ppf(0.975, len(reversals()) - 1) * cell.aer_se.item()
        assert (rate.low, rate.high) == pytest.approx((rate.error - half, rate.error + half), abs=1e-12)


def test_several_heads_together_link_by_the_mean_of_their_scores():
    planted, example = translator(plant=False), reversals()[4]
    linker = Linker("norms", "input", ((1, 2), (1, 4)))
    aligner = lo.align(planted, reversals(), copies(), progress=False)
    aligner = lo.Aligner(planted, linker, aligner.rates, aligner.development, aligner.test)
    trace = planted.trace(example)
    weights, value = trace["cross.1.weights"], trace["cross.1.value"]
    output = planted.anatomy.sites[-1].head_weights().output
    batch = planted.encode([example])
    expected = set()
    for target in range(len(batch.target.words[0])):
        scores = [
            sum(weights[h, target + 1, j].item() * (value[h, j] @ output[h]).norm().item() for h in (1, 3))
            for j in range(len(batch.source.words[0]))
        ]
        expected.add((scores.index(max(scores)), target))
    assert aligner.links([example], progress=False)[example.id] == expected


def test_rates_and_their_differences_by_hand():
    gold = {"a": Links.of([(0, 0), (1, 1)], [(0, 1)]), "b": Links.of([(0, 0)]), "c": Links.of([(2, 1)])}
    one = counted({"a": frozenset({(0, 0), (0, 1)}), "b": frozenset({(0, 0)}), "c": frozenset({(0, 0)})}, gold)
    other = counted({"a": frozenset({(0, 0)}), "b": frozenset({(1, 0)}), "c": frozenset({(2, 1)})}, gold)
    assert one.tolist() == [[1, 2, 2, 2], [1, 1, 1, 1], [0, 0, 1, 1]]
    rate = error_rate(one)
    assert rate.value == pytest.approx(1 - (3 + 2) / (4 + 4))
    # Dropping one text at a time and the linearised error agree on large samples.
    rng = np.random.default_rng(0)
    many, more = (rng.integers(0, 5, (400, 4)) + np.array([0.0, 0, 5, 5]) for _ in range(2))
    for estimate, of in (
        (error_rate(many), lambda kept: error_rate(many[kept]).value),
        (error_difference(many, more), lambda kept: error_rate(many[kept]).value - error_rate(more[kept]).value),
    ):
        dropped = np.array([of(np.arange(400) != text) for text in range(400)])
        jackknife = np.sqrt(399 / 400 * ((dropped - dropped.mean()) ** 2).sum())
        assert estimate.se == pytest.approx(jackknife, rel=0.01)
    assert error_difference(one, other).value == pytest.approx(rate.value - error_rate(other).value)
    assert error_difference(one, one).se == 0


def test_links_are_written_in_order():
    assert pharaoh_line(frozenset({(10, 2), (2, 10), (2, 3)})) == "2-3 2-10 10-2"


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (copies()[:2], {}, "two of each are needed"),
        ([Example("1", "a b")], {}, "'1' has no translation to align"),
        ([copies()[0], copies()[0]], {}, "Two texts have the id '3'"),
        (copies(), {"most": 1}, "most must be a whole number, at least 2"),
        (copies(), {"gold": {"3": "0-0"}}, "no sentence .*; they have '3'"),
    ],
)
def test_bad_input_is_one_line(texts, options, message):
    with pytest.raises(UserError, match=message) as caught:
        lo.align(translator(), texts, **options, progress=False)
    assert "\n" not in str(caught.value)
