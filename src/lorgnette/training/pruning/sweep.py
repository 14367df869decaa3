"""The same model pruned to several budgets: one folder each, a table and a figure."""

import json

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
    """Prune once for each share, into OUT/keep-SHARE, and write the table and the figure of all to OUT."""
    assert settings.sweep is not None
    if RunFolder(settings.folder).finished() is not None:
        raise UserError(f"{settings.folder} contains a model: choose another folder with --out.")
    renderer()  # before hours of pruning
    tuned: dict[int, Score] = {}
    rows = [_row(share, _pruned(settings, share, tuned)) for share in settings.sweep]
    for name, text in ((ROWS, json.dumps(rows, indent=1)), (TABLE, table(rows))):
        with written_whole(settings.folder / name) as partial:
            partial.write_text(text + "\n", encoding="utf-8")
    with written_whole(settings.folder / FIGURE) as partial:
        partial.write_bytes(drawn(curve(rows), "svg"))
    return Pruned(settings.folder, {"sweep": rows})


def _pruned(settings: PruningSettings, share: float, tuned: dict[int, Score]) -> Pruned:
    """One budget; a finished one is not run again."""
    folder = settings.folder / f"keep-{share:g}"
    done = RunFolder(folder).finished() is not None
    resume = settings.resume and (done or RunFolder(folder).work.is_dir())
    return prune(settings.at(share, folder, resume=resume), tuned)


def _row(share: float, pruned: Pruned) -> Json:
    """One budget's row of the table and point of the figure."""
    record = pruned.record
    after = record["metrics"][record["before"]["split"]]
    name, _ = metric_of(after)
    tuned, controls = record.get("tuned"), record["controls"]
    return {
        "keep": share,
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
    """Markdown: a line for each budget."""
    times = [f"{_runtime(each)}" for each in rows[0]["times"]]
    name = rows[0]["metric"]
    heads = ["keep", "parameters", "MB", "operations", *times, name, "less original", "less original trained as long",
             "before training", "random", "magnitude"]  # fmt: skip
    lines = [" | ".join(heads), " | ".join("---" for _ in heads)]
    lines += [" | ".join(_cells(row)) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def _cells(row: Json) -> list[str]:
    digits, controls = METRICS[row["metric"]], row["controls"]
    shown = METRICS[controls.get("metric", "accuracy")]
    random = controls["random"]
    return [
        f"{row['keep']:g}",
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
    """The score by the share of the model's parameters, with its 95 % interval; a line where the original is."""
    points = [
        {"parameters": row["parameters"], "value": row["value"], "low": row["interval"][0], "high": row["interval"][1]}
        for row in rows
    ]
    base = alt.Chart(alt.Data(values=points), width=390, height=220)
    scale = alt.Scale(zero=False)
    x = alt.X(field="parameters", type="quantitative", title="parameters left", axis=alt.Axis(format="%"), scale=scale)
    y = alt.Y(field="value", type="quantitative", title=rows[0]["metric"], scale=scale)
    bars = base.mark_rule().encode(x=x, y=alt.Y(field="low", type="quantitative"), y2=alt.Y2(field="high"))
    original = alt.Chart(alt.Data(values=[{"value": rows[0]["original"]}])).mark_rule(strokeDash=[4, 4]).encode(y=y)
    return alt.layer(
        bars, base.mark_line().encode(x=x, y=y), base.mark_point(filled=True, size=40).encode(x=x, y=y), original
    )
