"""The figures of TP 9."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

import altair as alt

from lorgnette.figures.charts import COLOURS
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure
from reproductions.tp9.grid import BLOCKS, Model
from reproductions.tp9.order_claims import NAMES as CORPORA
from reproductions.tp9.order_claims import POSITIONS, Orders
from reproductions.tp9.position_map import position_similarity
from reproductions.tp9.runs import CHANCE, NAMES, Runs

_MAP = 100  # positions shown
_APART = 0.15  # layers by which the dots of both blocks are moved apart


def figures(cells: Finished) -> list[Figure]:
    runs = Runs(cells)
    return [steps(runs), ranking(runs), curves(runs), depth(runs), position_map(), *order(cells)]


def order(cells: Finished) -> list[Figure]:
    """What shuffling costs, and how many contrast pairs are told apart; a dot for each seed."""
    orders, rows = Orders(cells), []
    for corpus, family in orders.places():
        for positions in ("none", *orders.positions(corpus, family)):
            where = (corpus, family, positions)
            place = {"model": f"{CORPORA[corpus]}, {family}", "positions": POSITIONS[positions]}
            for measure, values in (("lost", orders.lost(*where)), ("right", orders.of("pairs.right", *where))):
                rows += [{**place, "measure": measure, "value": float(value)} for value in values]
    if not rows:
        return []
    names = list(dict.fromkeys(row["model"] for row in rows))
    colour = alt.Color("model:N", scale=alt.Scale(domain=names, range=list(COLOURS[: len(names)])), title=None)
    panels = []
    for measure, title, neutral in (
        ("lost", "accuracy lost by shuffling", 0.0),
        ("right", "contrast pairs right", 0.5),
    ):
        some = alt.Data(values=[row for row in rows if row["measure"] == measure])
        y = alt.Y("positions:N", sort=list(POSITIONS.values()), title=None, axis=alt.Axis(labelLimit=260))
        x = alt.X("value:Q", title=title, scale=alt.Scale(zero=False))
        dots = alt.Chart(some, width=230, height=alt.Step(26)).mark_circle(size=36, opacity=0.7)
        line = alt.Chart(alt.Data(values=[{"at": neutral}])).mark_rule(strokeDash=[4, 3], color="#555555")
        panels.append(alt.layer(dots.encode(x=x, y=y, color=colour, yOffset="model:N"), line.encode(x="at:Q")))
    caption = (
        "Word order: accuracy lost when the words of the test texts are shuffled, and the share of contrast pairs "
        "ranked correctly (dashed: what a model without positions must have). A dot is a seed."
    )
    return [Figure("order", alt.hconcat(*panels), caption)]


def curves(runs: Runs) -> Figure:
    """Accuracy by epoch of the principal models, the mean over seeds that were still training."""
    names = {"mean": "mean (TP 8)", "base": "base", "residual": "residual"}
    rows: list[dict[str, Any]] = []
    for embeddings in runs.size.embeddings:
        for family, name in names.items():
            model = Model(family, embeddings, layers=3 if family in BLOCKS else None)
            entries = [entry for run in runs.of(model) for entry in run.result["curve"]]
            for epoch in sorted({entry["epoch"] for entry in entries}):
                for part in ("train", "validation"):
                    value = mean(entry[part]["accuracy"] for entry in entries if entry["epoch"] == epoch)
                    where = {"model": name, "reviews": part, "vectors": f"{embeddings} vectors"}
                    rows.append({**where, "epoch": epoch, "accuracy": value})
    chart = alt.Chart(alt.Data(values=rows), width=320, height=240).mark_line(point=alt.OverlayMarkDef(size=16))
    chart = chart.encode(
        x=alt.X("epoch:Q", title="epoch"),
        y=alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(zero=False)),
        color=alt.Color(
            "model:N", scale=alt.Scale(domain=list(names.values()), range=list(COLOURS[:3])), title="model"
        ),
        strokeDash=alt.StrokeDash(
            "reviews:N", scale=alt.Scale(domain=["train", "validation"], range=[[1, 0], [4, 3]]), legend=None
        ),
        column=alt.Column("vectors:N"),
    )
    return Figure(
        "curves",
        chart,
        "Training curves, three layers, no positions, mean over the seeds that were still training; solid on the "
        "training reviews, dashed on the validation reviews. Where the two part, a model learns the reviews by heart.",
    )


def position_map(width: int = 100) -> Figure:
    """pe_i·pe_j."""
    similarity = position_similarity(width, _MAP)
    every = range(0, _MAP, 2)
    rows = [{"i": i, "j": j, "value": round(float(similarity[i, j]), 4)} for i in every for j in every]
    chart = alt.Chart(alt.Data(values=rows), width=alt.Step(6), height=alt.Step(6)).mark_rect()
    axis = alt.Axis(labelExpr="datum.value % 20 == 0 ? datum.label : ''", ticks=False, domain=False, labelAngle=0)
    chart = chart.encode(
        x=alt.X("j:O", title="position j", axis=axis),
        y=alt.Y("i:O", title="position i", axis=axis),
        color=alt.Color("value:Q", title="pe_i · pe_j", scale=alt.Scale(scheme="viridis")),
    )
    return Figure(
        "positions",
        chart,
        f"pe_i·pe_j of the first {_MAP} sinusoidal positions, width {width} (every second one is drawn): it depends on "
        "i − j alone and is largest on the diagonal.",
    )


def depth(runs: Runs) -> Figure:
    """Accuracy by number of layers; a dot for each seed, moved aside so that all can be counted."""
    points, lines = [], []
    for place, family in enumerate(BLOCKS):
        stretch = 0  # no line across depths that lack a seed
        for layers in runs.size.depths:
            values = sorted(runs.accuracies(Model(family, "frozen", layers=layers)))
            for number, value in enumerate(values):
                at = layers + _APART * (place - 0.5) * 2 + _APART / 3 * (number - (len(values) - 1) / 2)
                points.append({"layers": at, "accuracy": value, "block": family})
            learnt = [value for value in values if value > CHANCE]
            if len(values) == len(runs.seeds) and learnt:
                lines.append({"layers": layers, "accuracy": mean(learnt), "block": family, "stretch": stretch})
            else:
                stretch += 1
    colour = alt.Color("block:N", scale=alt.Scale(domain=list(BLOCKS), range=list(COLOURS[:2])), title="block")
    depths = list(runs.size.depths)
    x = alt.X(
        "layers:Q",
        title="layers",
        axis=alt.Axis(values=depths, format="d", grid=False),
        scale=alt.Scale(domain=[min(depths) - 0.5, max(depths) + 0.5], nice=False),  # also those that were not run
    )
    y = alt.Y("accuracy:Q", title="test accuracy", scale=alt.Scale(domain=[0.48, 0.9], nice=False))
    line = alt.Chart(alt.Data(values=lines), width=480, height=240).mark_line()
    line = line.encode(x=x, y=y, color=colour, detail="stretch:N")
    dots = alt.Chart(alt.Data(values=points)).mark_circle(opacity=0.7, size=36).encode(x=x, y=y, color=colour)
    chance = alt.Chart(alt.Data(values=[{"at": 0.5}])).mark_rule(strokeDash=[4, 3], color="#555555")
    chance = chance.encode(y=alt.Y("at:Q", title="test accuracy", scale=alt.Scale(domain=[0.48, 0.9], nice=False)))
    caption = (
        "Test accuracy by depth, frozen vectors. A dot is a seed, the line the mean of the seeds that learnt; dots on "
        "the dashed line, chance, learnt nothing."
    )
    if len(points) < len(BLOCKS) * len(depths) * len(runs.seeds):
        caption += " Not all of it was run: a line is drawn only through depths with all seeds."
    return Figure("depth", alt.layer(chance, line, dots), caption)


def steps(runs: Runs) -> Figure:
    """What each exercise of the practical adds to the one before: a dot for each seed, a tick for their mean."""
    every: dict[str, Model] = {"mean of the words (TP 8)": Model("mean", "")}
    every |= {"1 self-attention": Model("base", "", layers=3), "2 with residuals": Model("residual", "", layers=3)}
    every["3 with sinusoidal positions"] = Model("residual", "", layers=3, positions="sinusoidal")
    every["4 from <cls>, no positions"] = Model("residual", "", layers=3, pooling="cls")
    rows = [
        {"step": name, "vectors": embeddings, "accuracy": value}
        for name, model in every.items()
        for embeddings in runs.size.embeddings
        for value in runs.accuracies(replace(model, embeddings=embeddings))
    ]
    y = alt.Y("step:N", sort=list(every), title=None, axis=alt.Axis(labelLimit=260))
    offset = alt.YOffset("vectors:N", sort=list(runs.size.embeddings))
    colour = alt.Color("vectors:N", scale=alt.Scale(domain=list(runs.size.embeddings), range=list(COLOURS[:2])))
    x = alt.X("accuracy:Q", title="test accuracy", scale=alt.Scale(zero=False))
    base = alt.Chart(alt.Data(values=rows), width=380, height=alt.Step(16))
    dots = base.mark_circle(size=45, opacity=0.7).encode(x=x, y=y, yOffset=offset, color=colour.title("word vectors"))
    middle = base.mark_tick(thickness=2, size=14).encode(x="mean(accuracy):Q", y=y, yOffset=offset, color=colour)
    caption = (
        "Test accuracy of the practical's models: a dot is a seed, the tick their mean. Models 1 to 4 have three "
        "layers; 2 adds residual connections to 1, and 3 and 4 each change one thing in 2."
    )
    return Figure("steps", alt.layer(middle, dots), caption)


def ranking(runs: Runs) -> Figure:
    """Every model, its seeds as an interval."""
    rows = _ranked(runs)
    order = [row["model"] for row in rows]
    y = alt.Y("model:N", sort=order, title=None, axis=alt.Axis(labelLimit=420))
    colour = alt.Color("vectors:N", scale=alt.Scale(range=list(COLOURS[:2])), title="vectors")
    base = alt.Chart(alt.Data(values=rows), width=320, height=alt.Step(15))
    dots = base.mark_circle(size=40).encode(
        x=alt.X("test:Q", title="test accuracy", scale=alt.Scale(zero=False)), y=y, color=colour
    )
    bars = base.mark_rule().encode(x="low:Q", x2="high:Q", y=y, color=colour)
    return Figure("models", alt.layer(bars, dots), "Test accuracy, mean over seeds, with ± one standard deviation.")


def _ranked(runs: Runs) -> Sequence[dict[str, Any]]:
    rows = []
    for model in runs.main_models():
        if not runs.of(model):
            continue
        accuracy = runs.accuracy(model)
        short = NAMES[model.family].split(":")[0].split(" (TP 8)")[0]
        positions = "no" if model.positions == "none" else runs.position_name(model)
        inside = "" if model.layers is None else f", {positions} positions, {model.pooling}"
        rows.append(
            {
                "model": f"{short}{inside}, {model.embeddings}",
                "vectors": model.embeddings,
                "test": accuracy.value,
                "low": accuracy.value - (accuracy.sd or 0.0),
                "high": accuracy.value + (accuracy.sd or 0.0),
            }
        )
    return sorted(rows, key=lambda row: -row["test"])
