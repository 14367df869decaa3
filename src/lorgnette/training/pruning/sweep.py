"""The same model pruned to several budgets, or with several seeds: one folder each, a table and a figure."""

import dataclasses
import json
from statistics import mean, stdev

import altair as alt

from lorgnette.errors import UserError
from lorgnette.figures.drawing import drawn, renderer
from lorgnette.files import written_whole
from lorgnette.training.folder import RunFolder
from lorgnette.training.pruning.prune import Pruned, prune
from lorgnette.training.pruning.score import METRICS, Score, metric_of
from lorgnette.training.pruning.settings import PruningSettings
from lorgnette.types import Chart, Json

TABLE, ROWS, FIGURE = "sweep.md", "sweep.json", "sweep.svg"


def sweep(settings: PruningSettings) -> Pruned:
    """Prune once for each share and seed, into OUT/keep-SHARE/seed-N, and write the table and the figure to OUT."""
    runs = settings.runs
    if RunFolder(settings.folder).finished() is not None:
        raise UserError(f"{settings.folder} contains a model: choose another folder with --out.")
    renderer()  # before hours of pruning
    tuned: dict[int, dict[int, Score]] = {}
    rows = [_row(run, _pruned(run, tuned.setdefault(run.seed, {}))) for run in runs]
    for name, text in ((ROWS, json.dumps(rows, indent=1)), (TABLE, table(rows))):
        with written_whole(settings.folder / name) as partial:
            partial.write_text(text + "\n", encoding="utf-8")
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
    tuned, controls = record.get("tuned"), record["controls"]
    return {
        "keep": run.keep,
        "seed": run.seed,
        "folder": str(pruned.folder),
        "metric": name,
        "value": after[name],
        "interval": after["interval"],
        "original": record["before"][name],
        "difference": record["difference"],
        "tuned": None if tuned is None else {"value": tuned[name], "difference": tuned["difference"]},
        "controls": controls,
        "parameters": record["parameters"]["after"] / record["parameters"]["before"],
        "megabytes": record["bytes"]["after"] / 1e6,
        "operations": 1 - record["speed"]["saved_operations"],
        "times": record["times"],
    }


def table(rows: list[Json]) -> str:
    """Markdown: a line for each run, and for each share the means over seeds where there are several."""
    times = [f"{_runtime(each)}" for each in rows[0]["times"]]
    heads = [*_named(rows), "parameters", "MB", "operations", *times, rows[0]["metric"], "less original",
             "less original trained as long", "before training", "random", "magnitude"]  # fmt: skip
    lines = [heads, ["---" for _ in heads]]
    for some in _by_share(rows):
        lines += [[*_named(rows, row), *_cells(row)] for row in some]
        if len(some) > 1:
            lines.append([*_named(rows, some[0] | {"seed": "mean ± sd"}), *_means(some)])
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


def _means(rows: list[Json]) -> list[str]:
    """Means over seeds, with the standard deviation of scores (n − 1)."""
    digits = METRICS[rows[0]["metric"]]
    shown = METRICS[rows[0]["controls"].get("metric", "accuracy")]

    def of(values: list[float]) -> str:
        return f"{mean(values):.{shown}f}" if values else ""

    def spread(values: list[float], sign: str = "") -> str:
        return f"{mean(values):{sign}.{digits}f} ± {stdev(values):.{digits}f}"

    tuned = [row["tuned"]["difference"]["value"] for row in rows if row["tuned"] is not None]
    random = [value for row in rows for value in row["controls"]["random"]]
    return [
        f"{mean(row['parameters'] for row in rows):.1%}",
        f"{mean(row['megabytes'] for row in rows):.1f}",
        f"{mean(row['operations'] for row in rows):.1%}",
        *(f"× {mean(row['times'][n]['measured'] for row in rows):.2f}" for n in range(len(rows[0]["times"]))),
        spread([row["value"] for row in rows]),
        spread([row["difference"]["value"] for row in rows], "+"),
        spread(tuned, "+") if len(tuned) == len(rows) else "",
        of([row["controls"]["chosen"] for row in rows]),
        of(random),
        of([row["controls"]["magnitude"] for row in rows if "magnitude" in row["controls"]]),
    ]


def _cells(row: Json) -> list[str]:
    digits, controls = METRICS[row["metric"]], row["controls"]
    shown = METRICS[controls.get("metric", "accuracy")]
    random = controls["random"]
    return [
        f"{row['parameters']:.1%}",
        f"{row['megabytes']:.1f}",
        f"{row['operations']:.1%}",
        *(f"× {each['measured']:.2f}" for each in row["times"]),
        f"{row['value']:.{digits}f} {_span(row['interval'], digits)}",
        f"{row['difference']['value']:+.{digits}f} {_span(row['difference']['interval'], digits)}",
        "" if row["tuned"] is None else f"{row['tuned']['difference']['value']:+.{digits}f} "
        f"{_span(row['tuned']['difference']['interval'], digits)}",
        f"{controls['chosen']:.{shown}f}",
        f"{sum(random) / len(random):.{shown}f}" if random else "",
        f"{controls['magnitude']:.{shown}f}" if "magnitude" in controls else "",
    ]  # fmt: skip


def _runtime(each: Json) -> str:
    return f"speed, {'torch' if each['runtime'] == 'torch' else 'ONNX Runtime'}, batch {each['batch'][0]}"


def _span(interval: list[float], digits: int) -> str:
    return f"[{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"


def curve(rows: list[Json]) -> Chart:
    """The score by the share of the model's parameters, with its 95 % interval; dashed, the original's.

    The line runs through the means over seeds.
    """
    points = [
        {"parameters": row["parameters"], "value": row["value"], "low": row["interval"][0], "high": row["interval"][1]}
        for row in rows
    ]
    means = [{name: mean(row[name] for row in some) for name in ("parameters", "value")} for some in _by_share(rows)]
    base = alt.Chart(alt.Data(values=points), width=390, height=220)
    scale = alt.Scale(zero=False)
    x = alt.X(field="parameters", type="quantitative", title="parameters left", axis=alt.Axis(format="%"), scale=scale)
    y = alt.Y(field="value", type="quantitative", title=rows[0]["metric"], scale=scale)
    bars = base.mark_rule().encode(x=x, y=alt.Y(field="low", type="quantitative"), y2=alt.Y2(field="high"))
    original = alt.Chart(alt.Data(values=[{"value": rows[0]["original"]}])).mark_rule(strokeDash=[4, 4]).encode(y=y)
    line = alt.Chart(alt.Data(values=means)).mark_line().encode(x=x, y=y)
    return alt.layer(bars, line, base.mark_point(filled=True, size=40).encode(x=x, y=y), original)
