"""The same model pruned to several budgets, or with several seeds: one folder each, a table and a figure."""

import dataclasses
import json
from collections.abc import Callable
from statistics import mean, stdev

import altair as alt

from lorgnette.errors import UserError
from lorgnette.figures.charts import percent_axis
from lorgnette.figures.drawing import drawn, renderer
from lorgnette.files import write_whole, written_whole
from lorgnette.training.folder import RunFolder
from lorgnette.training.pruning.compared import NOUNS
from lorgnette.training.pruning.prune import Pruned, prune
from lorgnette.training.pruning.runtimes import runtime_name
from lorgnette.training.pruning.score import METRICS, Score, metric_of
from lorgnette.training.pruning.settings import PruningSettings
from lorgnette.types import Chart, Json

TABLE, ROWS, FIGURE = "sweep.md", "sweep.json", "sweep.svg"
SHORT = {"tuned": "original", "random": "random choice", "scratch": "random weights"}
"""What the columns of the table call the models beside the pruned ones."""


def sweep(settings: PruningSettings) -> Pruned:
    """Prune once for each share and seed, into OUT/keep-SHARE/seed-N, and write the table and the figure to OUT."""
    runs = settings.runs
    if RunFolder(settings.folder).finished() is not None:
        raise UserError(f"{settings.folder} contains a model: choose another folder with --out.")
    renderer()  # before hours of pruning
    tuned: dict[int, dict[int, Score]] = {}
    rows = [_row(run, _pruned(run, tuned.setdefault(run.seed, {}))) for run in runs]
    for name, text in ((ROWS, json.dumps(rows, indent=1)), (TABLE, table(rows))):
        write_whole(settings.folder / name, text + "\n")
    with written_whole(settings.folder / FIGURE) as partial:
        partial.write_bytes(drawn(curve(rows), "svg"))
    return Pruned(settings.folder, {"sweep": rows})


def _pruned(run: PruningSettings, tuned: dict[int, Score]) -> Pruned:
    """One run; a finished one is not run again."""
    folder = RunFolder(run.folder)
    resume = run.resume and (folder.finished() is not None or folder.work.is_dir())
    return prune(dataclasses.replace(run, resume=resume), tuned)


def _row(run: PruningSettings, pruned: Pruned) -> Json:
    """A run's row of the table and point of the figure."""
    record = pruned.record
    after = record["metrics"][record["before"]["split"]]
    name, _ = metric_of(after)
    others = {key: record[key] for key in NOUNS if key in record}
    return {
        "keep": run.keep,
        "seed": run.seed,
        "folder": str(pruned.folder),
        "metric": name,
        "value": after[name],
        "interval": after["interval"],
        "original": record["before"][name],
        "difference": record["difference"],
        "others": {key: {"value": other[name], "difference": other["difference"]} for key, other in others.items()},
        "controls": record["controls"],
        "parameters": record["parameters"]["after"] / record["parameters"]["before"],
        "megabytes": record["bytes"]["after"] / 1e6,
        "operations": 1 - record["speed"]["saved_operations"],
        "times": record["times"],
    }


def table(rows: list[Json]) -> str:
    """Markdown: a line for each run, and for each share the means over seeds where there are several."""
    times = [f"speed, {runtime_name(each)}, batch {each['batch'][0]}" for each in rows[0]["times"]]
    others = [f"less {SHORT[key]} trained as long" for key in _others(rows)]
    heads = [*_named(rows), "parameters", "MB", "operations", *times, rows[0]["metric"], "less original", *others,
             "before training", "less random", "less magnitude"]  # fmt: skip
    lines = [heads, ["---" for _ in heads]]
    for some in _by_share(rows):
        lines += [[*_named(rows, row), *_cells(row, _others(rows))] for row in some]
        if len(some) > 1:
            lines.append([*_named(rows, some[0] | {"seed": "mean ± sd"}), *_means(some, _others(rows))])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _by_share(rows: list[Json]) -> list[list[Json]]:
    """The runs of each share, which differ in their seed."""
    return [[row for row in rows if row["keep"] == share] for share in dict.fromkeys(row["keep"] for row in rows)]


def _named(rows: list[Json], row: Json | None = None) -> list[str]:
    """The cells that say which run a line is of, where runs differ; without a row the columns' names."""
    names = [name for name in ("keep", "seed") if len({each[name] for each in rows}) > 1]
    if row is None:
        return names
    return [f"{row[name]:g}" if isinstance(row[name], int | float) else str(row[name]) for name in names]


def _others(rows: list[Json]) -> list[str]:
    """The models that some of the pruned ones are compared with, in the order of their columns."""
    return [key for key in NOUNS if any(key in row["others"] for row in rows)]


def _means(rows: list[Json], others: list[str]) -> list[str]:
    """Means over seeds, with the standard deviation of scores (n − 1)."""
    digits = METRICS[rows[0]["metric"]]
    shown = METRICS[rows[0]["controls"]["metric"]]

    def spread(values: list[float], digits: int, sign: str = "") -> str:
        return f"{mean(values):{sign}.{digits}f} ± {stdev(values):.{digits}f}" if len(values) == len(rows) else ""

    def less(name: str) -> str:
        found = [row["controls"]["difference"].get(name) for row in rows]
        return spread([each["value"] for each in found if each is not None], shown, "+")

    return [
        f"{mean(row['parameters'] for row in rows):.1%}",
        f"{mean(row['megabytes'] for row in rows):.1f}",
        f"{mean(row['operations'] for row in rows):.1%}",
        *(f"× {mean(row['times'][n]['measured'] for row in rows):.2f}" for n in range(len(rows[0]["times"]))),
        spread([row["value"] for row in rows], digits),
        spread([row["difference"]["value"] for row in rows], digits, "+"),
        *(
            spread([row["others"][key]["difference"]["value"] for row in rows if key in row["others"]], digits, "+")
            for key in others
        ),
        spread([row["controls"]["chosen"] for row in rows], shown),
        less("random"),
        less("magnitude"),
    ]


def _cells(row: Json, others: list[str]) -> list[str]:
    digits, controls = METRICS[row["metric"]], row["controls"]
    shown = METRICS[controls["metric"]]
    return [
        f"{row['parameters']:.1%}",
        f"{row['megabytes']:.1f}",
        f"{row['operations']:.1%}",
        *(f"× {each['measured']:.2f}" for each in row["times"]),
        f"{row['value']:.{digits}f} {_span(row['interval'], digits)}",
        _change(row["difference"], digits),
        *(_change(row["others"].get(key, {}).get("difference"), digits) for key in others),
        f"{controls['chosen']:.{shown}f}",
        *(_change(controls["difference"].get(name), shown) for name in ("random", "magnitude")),
    ]


def _change(difference: Json | None, digits: int) -> str:
    if difference is None:
        return ""
    return f"{difference['value']:+.{digits}f} {_span(difference['interval'], digits, '+')}"


def _span(interval: list[float], digits: int, sign: str = "") -> str:
    return f"[{interval[0]:{sign}.{digits}f}, {interval[1]:{sign}.{digits}f}]"


def curve(rows: list[Json]) -> Chart:
    """Scores by the share of the model's parameters: at the end, and before any training beside random choices.

    At the end with 95 % intervals; dashed, the original. Lines run through the means over seeds.
    """
    return alt.hconcat(_at_the_end(rows), _before_training(rows))


def _at_the_end(rows: list[Json]) -> Chart:
    points = [
        {"parameters": row["parameters"], "value": row["value"], "low": row["interval"][0], "high": row["interval"][1]}
        for row in rows
    ]
    base = alt.Chart(alt.Data(values=points), width=300, height=220, title="trained afterwards")
    x, y = _axes(rows[0]["metric"])
    bars = base.mark_rule().encode(x=x, y=alt.Y(field="low", type="quantitative"), y2=alt.Y2(field="high"))
    original = alt.Chart(alt.Data(values=[{"value": rows[0]["original"]}])).mark_rule(strokeDash=[4, 4]).encode(y=y)
    line = alt.Chart(alt.Data(values=_mean_points(rows, lambda row: row["value"]))).mark_line().encode(x=x, y=y)
    return alt.layer(bars, line, base.mark_point(filled=True, size=40).encode(x=x, y=y), original)


def _before_training(rows: list[Json]) -> Chart:
    """The choices, random ones of the same budget, and those by magnitude."""
    points = []
    for row in rows:
        controls = row["controls"]
        drawn = [("random", value) for value in controls["random"]]
        drawn += [("magnitude", controls["magnitude"])] if "magnitude" in controls else []
        both = [("chosen", controls["chosen"]), *drawn]
        points += [{"parameters": row["parameters"], "value": value, "choice": name} for name, value in both]
    x, y = _axes(rows[0]["controls"]["metric"])
    colour = alt.Color(field="choice", type="nominal", sort=["chosen", "random", "magnitude"], title=None)
    base = alt.Chart(alt.Data(values=points), width=300, height=220, title="before any training")
    line = alt.Chart(alt.Data(values=_mean_points(rows, lambda row: row["controls"]["chosen"]))).mark_line()
    return alt.layer(line.encode(x=x, y=y), base.mark_point(filled=True, size=40).encode(x=x, y=y, color=colour))


def _axes(metric: str) -> tuple[alt.X, alt.Y]:
    scale = alt.Scale(zero=False)
    share = alt.X(field="parameters", type="quantitative", title="parameters left", axis=percent_axis(),
                  scale=scale)  # fmt: skip
    return share, alt.Y(field="value", type="quantitative", title=metric, scale=scale)


def _mean_points(rows: list[Json], value: Callable[[Json], float]) -> list[Json]:
    return [
        {"parameters": mean(row["parameters"] for row in some), "value": mean(map(value, some))}
        for some in _by_share(rows)
    ]
