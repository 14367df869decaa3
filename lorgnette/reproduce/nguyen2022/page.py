"""The outcome of Nguyen et al. 2022 put together."""

from collections.abc import Iterator
from itertools import product
from statistics import mean
from typing import TYPE_CHECKING, Any

import altair as alt
import pandas as pd

from lorgnette.report.charts import COLOURS
from lorgnette.reproduce.estimates import difference, estimate
from lorgnette.reproduce.nguyen2022 import shape
from lorgnette.reproduce.nguyen2022.runs import Outcome
from lorgnette.reproduce.record import Claim, Figure, Reproduction, Table, origin, published

if TYPE_CHECKING:
    from lorgnette.reproduce.record import Settings

NAMES = {"hatexplain": "HateXplain", "yelphat": "YelpHat", "esnli": "e-SNLI"}
_BARELY = 0.02  # of accuracy: "barely moves"


def page_of(settings: "Settings", outcome: Outcome) -> Reproduction:
    told = published("nguyen2022")
    some = next(iter(outcome.results.values()))
    return Reproduction(
        name="nguyen2022",
        title="Nguyen et al. 2022: does sharper attention look more like what people mark?",
        reference=told["reference"],
        question="How does plausibility change with the weight λ of the entropy penalty?",
        setup=_setup(outcome),
        summary=_summary(outcome, told),
        tables=[*_tables(outcome), _beside(outcome, told)]
        if "esnli" in outcome.size.corpora
        else list(_tables(outcome)),
        figures=list(_figures(outcome)),
        claims=[claim for where in _places(outcome) for claim in _claims(outcome, told, *where)],
        provenance=origin(
            settings,
            "nguyen2022",
            texts={corpus: _any(outcome, corpus)["texts"] for corpus in outcome.size.corpora},
            corpus_fingerprints={c: _any(outcome, c)["corpus_fingerprint"] for c in outcome.size.corpora},
            devices=sorted({one["device"] for one in outcome.results.values()}),
            trained_with=some["versions"],
            runs={key: _kept(one) for key, one in outcome.results.items()},
        ),
    )


def _places(outcome: Outcome) -> list[tuple[str, str]]:
    return list(product(outcome.size.corpora, outcome.size.vectors))


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
        "three; e-SNLI, the majority of three annotators, for the entailment pairs that come with highlights. "
        "e-SNLI is trained on 80 % of its dev split (there is no training split here), and the two sentences are "
        "read as one text: the paper lets them attend to each other.",
        f"Training: Adam at 1e-3, batches of {size.batch_size}, at most {size.epochs} epochs, patience "
        f"{size.patience} on the validation loss (penalty included). Seeds {', '.join(map(str, outcome.seeds))}.",
        "Plausibility: the weight of a word is the sum over its tokens, rescaled to 0…1 within a text (the "
        "released code takes a softmax of the weights once more before that; here not). *Pooled*: the words of "
        "all test texts with a mark together, as in the paper. *Per instance*: the mean over texts, as in "
        "ERASER; the two are not comparable. Intervals: a bootstrap over test texts and seeds, the same texts "
        "for every λ.",
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
    for corpus, vectors in _places(outcome):
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
            note += f" {part}: AUPRC {values[0]:.3f} at λ = {ends[0]:g}, {values[1]:.3f} at {ends[1]:g}."
        yield Table(f"{NAMES[corpus]}, {vectors}", pd.DataFrame(rows), note)


def _beside(outcome: Outcome, told: Any) -> Table:
    rows = []
    for place, strength in enumerate(told["esnli"]["lambda"]):
        if strength not in outcome.size.strengths:
            continue
        row: dict[str, Any] = {"λ": f"{strength:g}"}
        for measure in ("accuracy", "auroc", "iou"):
            row[f"{measure}, published"] = told["esnli"][measure][place]
            for vectors in outcome.size.vectors:
                found = outcome.of("esnli", vectors, strength)
                pick = [_measure(one, measure) for one in found]
                row[f"{measure}, {vectors}"] = mean(pick)
        rows.append(row)
    note = (
        f"Published: {told['esnli']['source']}. Not the same data (ours: a tenth of the training pairs, marked "
        "entailment pairs only) nor the same attention: compare the shapes, not the digits. How the paper "
        "binarises for IoU is not known; ours takes rescaled weights of at least ½."
    )
    return Table("e-SNLI beside the published numbers", pd.DataFrame(rows), note)


def _measure(one: Any, name: str) -> float:
    return float(
        one["metrics"]["test"]["accuracy"] if name == "accuracy" else one["plausibility"]["all"]["pooled"][name]
    )


def _claims(outcome: Outcome, told: Any, corpus: str, vectors: str) -> Iterator[Claim]:
    where = f"{NAMES[corpus]}, {vectors}"
    for measure in shape.MEASURES:
        up, down = (step(outcome, corpus, vectors, measure) for step in (shape.rise, shape.fall))
        least, most = ", ".join(f"{s:g}" for s in shape.small(outcome)), max(outcome.size.strengths)
        public = {key: told["shape"][key].get(measure) for key in ("rise", "fall")} if corpus == "esnli" else {}
        yield Claim(
            text=f"{where}: pooled {measure.upper()} rises from λ = 0 to {least}",
            ours=up.value,
            interval=up.interval,
            published=public.get("rise"),
            verdict=("does not hold", "cannot tell", "holds")[up.sign + 1],
        )
        yield Claim(
            text=f"{where}: … and falls from there to λ = {most:g}",
            ours=down.value,
            interval=down.interval,
            published=public.get("fall"),
            verdict=("holds", "cannot tell", "does not hold")[down.sign + 1],
            why=f"peak, then fall: {shape.verdict(up, down)}",
        )
    moved = _accuracy_moves(outcome, corpus, vectors)
    yield Claim(
        text=f"{where}: accuracy moves by less than {_BARELY} over all λ",
        ours=moved,
        verdict="holds" if moved < _BARELY else "does not hold",
        why="largest difference of means from λ = 0",
    )


def _accuracy_moves(outcome: Outcome, corpus: str, vectors: str) -> float:
    def values(strength: float) -> list[float]:
        return [one["metrics"]["test"]["accuracy"] for one in outcome.of(corpus, vectors, strength)]

    return max(abs(difference(values(s), values(0.0)).mean) for s in outcome.size.strengths)


def _summary(outcome: Outcome, told: Any) -> list[str]:
    said = [f"**The published shape**: {told['shape']['text']}."]
    for corpus, vectors in _places(outcome):
        areas = {s: mean(shape.pooled(outcome, corpus, vectors, s, "auprc")) for s in outcome.size.strengths}
        best = max(areas, key=lambda strength: areas[strength])
        up, down = (step(outcome, corpus, vectors, "auprc") for step in (shape.rise, shape.fall))
        sharp = {s: mean(one["metrics"]["test"]["entropy"] for one in outcome.of(corpus, vectors, s)) for s in areas}
        most = max(areas)
        said.append(
            f"**{NAMES[corpus]}, {vectors}.** Peak, then fall: {shape.verdict(up, down)}. The pooled AUPRC is "
            f"{areas[0.0]:.3f} at λ = 0, highest at λ = {best:g} ({areas[best]:.3f}), and {areas[most]:.3f} at "
            f"{most:g}; the entropy goes from {sharp[0.0]:.2f} to {sharp[most]:.2f}, the accuracy moves by at most "
            f"{_accuracy_moves(outcome, corpus, vectors):.3f}."
        )
    said.append(
        "A map that agrees with people's marks is plausible; that says nothing of whether the model used those words."
    )
    return said


def _figures(outcome: Outcome) -> Iterator[Figure]:
    panels = {"AUPRC": "auprc", "AUROC": "auroc"}
    rows: list[dict[str, Any]] = []
    for (corpus, vectors), strength in product(_places(outcome), outcome.size.strengths):
        one = {"corpus": f"{NAMES[corpus]}, {vectors}", "λ": strength}
        for title, measure in panels.items():
            rows += [
                {**one, "of": title, "value": v} for v in shape.pooled(outcome, corpus, vectors, strength, measure)
            ]
        for title, key in (("accuracy", "accuracy"), ("entropy H", "entropy")):
            found = outcome.of(corpus, vectors, strength)
            rows += [{**one, "of": title, "value": float(run["metrics"]["test"][key])} for run in found]
    names = [f"{NAMES[corpus]}, {vectors}" for corpus, vectors in _places(outcome)]
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
