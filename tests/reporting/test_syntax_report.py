"""The lenses on syntax on a page: figures that hold, sentences whose numbers are the result's."""

import pytest
from tiny import TREEBANK, bert, marian, planted

import lorgnette as lo
from benchmarks.planted_heads import HEADS
from lorgnette.lens.attention_probe.lens import AttentionProbe
from lorgnette.lens.relations.lens import Relations, best_heads
from lorgnette.reporting import figures_of, findings


@pytest.fixture(scope="module")
def results():
    subject, texts = planted()
    return lo.look(subject, texts, ["relations", "trees", "attention-probe"], progress=False)


def test_every_figure_can_be_drawn(results):
    for result in results.values():
        for figure in figures_of(result):
            assert figure.chart.to_dict()
            assert len(figure.table)
            assert len(figure.data)
    html = lo.Report(results).html()
    assert html.count("<svg") == html.count("<figure")


def test_sentences_tell_the_numbers(results):
    said = {lens: findings({lens: result})[0] for lens, result in results.items()}
    trees = said["trees"]
    assert trees.numbers["best"] == f"1.{HEADS.index('tree') + 1} (1.00)"
    relations = said["relations"]
    table = best_heads(results["relations"])
    best = table[(table.relation != "all") & (table.relation != "punct")]
    assert relations.numbers["relations"] == best.relation.nunique()
    assert 0 < relations.numbers["ahead"] <= relations.numbers["relations"]
    assert said["attention-probe"].numbers["uas"] > 0.9
    assert "nan" not in " ".join(finding.text for finding in findings(results))


@pytest.mark.parametrize("maker", [bert, marian])
def test_few_texts_and_several_stacks(maker):
    lenses = ["trees", "coreference", AttentionProbe(steps=5), Relations(["nsubj"])]
    results = lo.look(maker(), TREEBANK, lenses, progress=False)
    for result in results.values():
        figures = figures_of(result)
        assert figures
        assert all(figure.chart.to_dict() for figure in figures)
    assert "nan" not in " ".join(finding.text for finding in findings(results))
    assert "</html>" in lo.Report(results).html()
