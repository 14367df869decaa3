"""Learning curves: the same look at every checkpoint of a training, put together with a step axis in front."""

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import xarray as xr

from lorgnette import axes
from lorgnette.errors import UserError
from lorgnette.files import hidden
from lorgnette.lens.base import Lens
from lorgnette.looking.look import StepOptions, look
from lorgnette.looking.texts import Texts, TokenizedTexts
from lorgnette.results import Result, Results
from lorgnette.subject import Subject

_STEPS = "steps"


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
    out: Path | None = None,
    resume: bool = False,
    truncate: bool = False,
    **options: Unpack[StepOptions],
) -> Results:
    """Look at each checkpoint with lenses of its own; every number has a step axis in front.

    `options` are those of `look`. One model is in memory at a time. A lens that cannot look at one of the checkpoints
    ends the look. With `out`, each finished checkpoint is kept beside that folder until `drop_steps`, and `resume=True`
    goes on after the last one.
    """
    if out is not None and not resume:
        drop_steps(out)
    runs: dict[int, Results] = {}
    for step, name in checkpoints.items():
        subject = load(name)
        runs[step] = look(
            subject,
            TokenizedTexts(subject, corpus, truncate=truncate),
            lenses(),
            out=None if out is None else hidden(out, _STEPS) / str(step),
            resume=resume and out is not None,
            **options,
        )
        del subject
    return by_step(runs, str(Path(next(iter(checkpoints.values()))).parent))


def drop_steps(out: Path) -> None:
    """Remove what a look at several checkpoints has kept beside its folder."""
    shutil.rmtree(hidden(out, _STEPS), ignore_errors=True)


def by_step(runs: Mapping[int, Results], name: str) -> Results:
    """The results of several checkpoints as one, with a step axis; a note names what one of them lacks."""
    every = list(dict.fromkeys(lens for run in runs.values() for lens in run))
    whole = [lens for lens in every if all(lens in run for run in runs.values())]
    notes = [f"steps {', '.join(map(str, runs))}; the weights hash and the times belong to the last checkpoint"]
    notes += [f"{lens} is left out: not every checkpoint has it" for lens in every if lens not in whole]
    out = []
    for lens in whole:
        origin = replace(list(runs.values())[-1][lens].provenance, model=name)
        for note in notes:
            origin = origin.noted(note)
        out.append(Result(lens, with_steps({step: run[lens].data for step, run in runs.items()}, lens), origin))
    return Results(out)


def with_steps(data: Mapping[int, xr.Dataset], lens: str) -> xr.Dataset:
    """The same variables at several steps, with a step axis in front."""
    axis = xr.IndexVariable(axes.STEP, list(data))
    try:
        return xr.concat(
            list(data.values()),
            axis,
            data_vars="all",
            coords="minimal",
            compat="equals",
            join="exact",
            combine_attrs="drop_conflicts",
        )
    except ValueError as error:
        raise UserError(
            f"The results of {lens!r} do not have the same layers, heads or labels at every step. Give the checkpoints "
            "of one training."
        ) from error
