"""The outcome of Nguyen et al. 2022 put together."""

import re
from collections.abc import Iterator
from itertools import product
from statistics import mean
from typing import TYPE_CHECKING, Any

import altair as alt
import pandas as pd

from lorgnette.figures.charts import COLOURS
from reproductions.frame.estimates import estimate
from reproductions.frame.record import Figure, Reproduction, Table, origin, published
from reproductions.nguyen2022 import answers, shape
from reproductions.nguyen2022.answers import NAMES, places
from reproductions.nguyen2022.runs import Outcome

if TYPE_CHECKING:
    from reproductions.frame.record import Settings

_MEASURES = {"accuracy": "accuracy", "auroc": "AUROC", "iou": "IoU"}
_SHORT = "ham_part1(50words)"  # the part of YelpHat that the printed numbers are about


def page_of(settings: "Settings", outcome: Outcome) -> Reproduction:
    told = published("nguyen2022")
    return Reproduction(
        name="nguyen2022",
        title="Nguyen et al. 2022: does sharper attention look more like what people mark?",
        reference=told["reference"],
        question="How does plausibility change with the weight λ of the entropy penalty?",
        setup=_setup(outcome),
        summary=answers.summary(outcome, told),
        tables=[*_tables(outcome), *_beside(outcome, told), _beside_others(outcome, told)],
        figures=list(_figures(outcome)),
        claims=list(answers.claims(outcome, told)),
        provenance=origin(
            settings,
            "nguyen2022",
            texts={corpus: _any(outcome, corpus)["texts"] for corpus in outcome.size.corpora},
            corpus_fingerprints={c: _any(outcome, c)["corpus_fingerprint"] for c in outcome.size.corpora},
            devices=sorted({one["device"] for one in outcome.results.values()}),
            trained_with={one["device"]: one["versions"] for one in outcome.results.values()},
            runs={key: _kept(one) for key, one in outcome.results.items()},
        ),
    )


def _any(outcome: Outcome, corpus: str) -> Any:
    return outcome.of(corpus, next(iter(outcome.size.vectors)), outcome.size.strengths[0])[0]


def _kept(one: Any) -> dict[str, Any]:
    groups = {
        name: {key: value for key, value in group.items() if key != "draws"}
        for name, group in one["plausibility"].items()
    }
    return {**{name: one[name] for name in ("metrics", "best", "parameters", "seconds")}, "plausibility": groups}


def _setup(outcome: Outcome) -> list[str]:
    size = outcome.size
    texts = "; ".join(
        f"{NAMES[c]} {_any(outcome, c)['texts']['train']:,} texts to train on, "
        f"{_any(outcome, c)['texts']['test']:,} to test, {_any(outcome, c)['plausibility']['all']['texts']:,} of "
        "them with marked words"
        for c in size.corpora
    )
    return [
        "Model: word vectors (trained further), one BiLSTM layer, one attention head whose query is the final "
        "state, ReLU layer, classifier; GloVe of width 100, and random vectors of width 300 (the paper's 300-d "
        "GloVe is not at hand). Loss: cross-entropy + λ · mean H, H the entropy of the attention row divided by log n.",
        f"Texts: {texts}. Marked words: HateXplain, at least half of the annotators; YelpHat, the majority of "
        "its annotators; e-SNLI, the majority of three annotators, for the entailment pairs that come with "
        "highlights. e-SNLI is trained on 80 % of its dev split (there is no training split here), and the two "
        "sentences are read as one text: the paper lets them attend to each other.",
        f"Training: Adam at 1e-3, batches of {size.batch_size}, at most {size.epochs} epochs, patience "
        f"{size.patience} on the validation loss (penalty included). Seeds {', '.join(map(str, outcome.seeds))}.",
        "Which texts count: every test text with a marked word, of whatever class. For HateXplain these are hateful "
        "and offensive posts, for e-SNLI entailment pairs, for YelpHat *both* classes, negative and positive reviews; "
        "the released code leaves out the texts of class 0.",
        "Plausibility: the weight of a word is the sum over its tokens, rescaled to 0…1 within a text (the "
        "released code takes a softmax of the weights once more before that; here not). *Pooled*: the words of "
        "all test texts with a mark together, as in the paper. *Per instance*: the mean over texts, as in "
        "ERASER; the two are not comparable. Intervals: a bootstrap over test texts and seeds, the same texts "
        "for every λ; of three seeds it makes them rather too narrow. Those of accuracy: over seeds, t distribution.",
    ]


def _row(outcome: Outcome, corpus: str, vectors: str, strength: float) -> dict[str, Any]:
    found = outcome.of(corpus, vectors, strength)
    right = estimate([one["metrics"]["test"]["accuracy"] for one in found])
    area = estimate(shape.pooled(outcome, corpus, vectors, strength, "auprc"))
    groups = [one["plausibility"]["all"] for one in found]
    return {
        "λ": f"{strength:g}",
        "accuracy": right.mean,
        "± sd": right.sd,
        "macro F1": mean(one["metrics"]["test"]["macro_f1"] for one in found),
        "H": mean(one["metrics"]["test"]["entropy"] for one in found),
        "AUPRC": area.mean,
        "AUPRC ± sd": area.sd,
        "AUROC": mean(group["pooled"]["auroc"] for group in groups),
        "IoU": mean(group["pooled"]["iou"] for group in groups),
        "AUPRC per instance": mean(group["per_instance"]["auprc"] for group in groups),
        "AUROC per instance": mean(group["per_instance"]["auroc"] for group in groups),
    }


def _tables(outcome: Outcome) -> Iterator[Table]:
    for corpus, vectors in places(outcome):
        rows = [_row(outcome, corpus, vectors, strength) for strength in outcome.size.strengths]
        share = _any(outcome, corpus)["plausibility"]["all"]["marked"]
        note = f"Scores without information reach a pooled AUPRC of {share:.3f}, the share of marked words."
        parts = [name for name in _any(outcome, corpus)["plausibility"] if name != "all"]
        for part in parts:
            ends = (outcome.size.strengths[0], outcome.size.strengths[-1])
            values = [
                mean(one["plausibility"][part]["pooled"]["auprc"] for one in outcome.of(corpus, vectors, end))
                for end in ends
            ]
            note += f" {_part(part)}: AUPRC {values[0]:.3f} at λ = {ends[0]:g}, {values[1]:.3f} at {ends[1]:g}."
        yield Table(f"{NAMES[corpus]}, {vectors}", pd.DataFrame(rows), note)


def _part(name: str) -> str:
    """Of YelpHat, whose parts are called ham_part1(50words) and so on."""
    found = re.search(r"\((\d+)words\)", name)
    return f"Reviews of {found[1]} words" if found else name


def _beside(outcome: Outcome, told: Any) -> Iterator[Table]:
    if "esnli" not in outcome.size.corpora:
        return
    rows = []
    for place, strength in enumerate(told["esnli"]["lambda"]):
        if strength not in outcome.size.strengths:
            continue
        row: dict[str, Any] = {"λ": f"{strength:g}"}
        for measure, title in _MEASURES.items():
            row[f"{title}, published"] = told["esnli"][measure][place]
            for vectors in outcome.size.vectors:
                found = outcome.of("esnli", vectors, strength)
                pick = [_measure(one, measure) for one in found]
                row[f"{title}, {vectors}"] = mean(pick)
        rows.append(row)
    note = (
        f"Published: {told['esnli']['source']}. Not the same data (ours: "
        f"{_any(outcome, 'esnli')['texts']['train']:,} training pairs, theirs about 550,000; ours: marked entailment "
        "pairs only) nor the same attention: compare the shapes, not the digits. How the paper "
        "binarises for IoU is not known; ours takes rescaled weights of at least ½."
    )
    yield Table("e-SNLI beside the published numbers", pd.DataFrame(rows), note)


def _beside_others(outcome: Outcome, told: Any) -> Table:
    """The few numbers that are printed for the other two corpora, where our λ is the same."""
    rows: list[dict[str, Any]] = []
    for corpus in (name for name in ("hatexplain", "yelphat") if name in outcome.size.corpora):
        for place, strength in enumerate(told[corpus]["lambda"]):
            if strength not in outcome.size.strengths:
                continue
            for measure in (name for name in ("auprc", "auroc") if told[corpus].get(name, [None] * 9)[place]):
                row = {"corpus": NAMES[corpus], "λ": f"{strength:g}", "measure": measure.upper()}
                row["published"] = told[corpus][measure][place]
                for vectors in outcome.size.vectors:
                    groups = [one["plausibility"] for one in outcome.of(corpus, vectors, strength)]
                    row[vectors] = mean(group.get(_SHORT, group["all"])["pooled"][measure] for group in groups)
                rows.append(row)
    note = " ".join(
        f"{NAMES[c]}, published: {told[c]['source']}." for c in ("hatexplain", "yelphat") if c in outcome.size.corpora
    )
    if "yelphat" in outcome.size.corpora:
        note += " YelpHat, ours: the reviews of 50 words alone."
    return Table("The others beside the published numbers", pd.DataFrame(rows), note)


def _measure(one: Any, name: str) -> float:
    return float(
        one["metrics"]["test"]["accuracy"] if name == "accuracy" else one["plausibility"]["all"]["pooled"][name]
    )


def _figures(outcome: Outcome) -> Iterator[Figure]:
    panels = {"AUPRC": "auprc", "AUROC": "auroc"}
    rows: list[dict[str, Any]] = []
    for (corpus, vectors), strength in product(places(outcome), outcome.size.strengths):
        one = {"corpus": f"{NAMES[corpus]}, {vectors}", "λ": strength}
        for title, measure in panels.items():
            rows += [
                {**one, "of": title, "value": v} for v in shape.pooled(outcome, corpus, vectors, strength, measure)
            ]
        for title, key in (("accuracy", "accuracy"), ("entropy H", "entropy")):
            found = outcome.of(corpus, vectors, strength)
            rows += [{**one, "of": title, "value": float(run["metrics"]["test"][key])} for run in found]
    names = [f"{NAMES[corpus]}, {vectors}" for corpus, vectors in places(outcome)]
    colour = alt.Color("corpus:N", scale=alt.Scale(domain=names, range=list(COLOURS[: len(names)])), title=None)
    charts = []
    for title in (*panels, "accuracy", "entropy H"):
        base = alt.Chart(alt.Data(values=[row for row in rows if row["of"] == title]), width=300, height=200)
        x = alt.X("λ:Q", title="λ")
        y = alt.Y("mean(value):Q", title=title, scale=alt.Scale(zero=False))
        line = base.mark_line(point=True).encode(x=x, y=y, color=colour)
        dots = base.mark_circle(opacity=0.4, size=14).encode(x=x, y=alt.Y("value:Q", title=title), color=colour)
        charts.append(alt.layer(line, dots))
    yield Figure(
        "lambda",
        alt.concat(*charts, columns=2),
        "Pooled plausibility, accuracy and entropy by the weight of the penalty; a dot is a seed, the line their mean.",
    )
