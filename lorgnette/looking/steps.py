"""Learning curves: the same look at every checkpoint of a training, put together with a step axis in front."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import xarray as xr

from lorgnette import axes
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.looking.look import look
from lorgnette.looking.texts import Texts, TokenizedTexts
from lorgnette.results import Result, Results
from lorgnette.subject import Subject


def steps_of(models: Sequence[str]) -> dict[int, str]:
    """Checkpoints in the order of their steps, which are the numbers that their names end in."""
    out: dict[int, str] = {}
    for model in models:
        number = re.search(r"\d+$", Path(model).name)
        if number is None:
            raise UserError(
                f"Several models are checkpoints of one training, whose names end in their steps, such as "
                f"run/checkpoint-500. {model!r} does not. To set models side by side, look at each, and use compare."
            )
        if (step := int(number[0])) in out:
            raise UserError(f"{out[step]!r} and {model!r} are both of step {step}. Give the checkpoints of one run.")
        out[step] = model
    return dict(sorted(out.items()))


def look_by_step(
    checkpoints: Mapping[int, str],
    corpus: Texts,
    lenses: Callable[[], Sequence[Lens | str] | str],
    load: Callable[[str], Subject],
    *,
    batch_tokens: int = 4096,
    truncate: bool = False,
    progress: bool = True,
    labels: Mapping[str, str] | None = None,
    seed: int | None = None,
    command: str | None = None,
) -> Results:
    """Look at each checkpoint with lenses of its own; every number of the results has a step axis in front.

    One model is in memory at a time. A lens that cannot look at one of the checkpoints ends the look.
    """
    runs: dict[int, Results] = {}
    for step, name in checkpoints.items():
        subject = load(name)
        runs[step] = look(
            subject,
            TokenizedTexts(subject, corpus, truncate=truncate),
            lenses(),
            batch_tokens=batch_tokens,
            progress=progress,
            labels=labels,
            seed=seed,
            command=command,
        )
        del subject
    return by_step(runs, str(Path(next(iter(checkpoints.values()))).parent))


def by_step(runs: Mapping[int, Results], name: str) -> Results:
    """The results of several checkpoints as one, with a step axis; lenses that all of them have."""
    first, *others = runs.values()
    out = []
    for lens in first:
        if any(lens not in other for other in others):
            continue
        axis = xr.IndexVariable(axes.STEP, list(runs))
        try:
            data = xr.concat(
                [run[lens].data for run in runs.values()],
                axis,
                data_vars="all",
                coords="minimal",
                compat="equals",
                join="exact",
                combine_attrs="drop_conflicts",
            )
        except ValueError as error:
            raise UserError(
                f"The checkpoints do not have the same numbers of {lens!r} (layers, heads or labels differ). Give "
                "those of one training."
            ) from error
        origin = list(runs.values())[-1][lens].provenance
        steps = ", ".join(map(str, runs))
        noted = replace(origin, model=name).noted(f"steps {steps}; hash and times are those of the last")
        out.append(Result(lens, data, noted))
    return Results(out)
