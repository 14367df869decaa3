"""What every test shares: no network, few threads, no progress bars."""

import dataclasses
import gc
import importlib
import importlib.util
import inspect
import os
import random
from collections.abc import Callable, Iterator
from functools import partial, wraps
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any, ForwardRef, Literal, get_args, get_origin

# Before anything imports huggingface_hub or torch: they read these once. Two workers share two cores.
os.environ.update(
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    HF_HUB_DISABLE_PROGRESS_BARS="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    TRANSFORMERS_VERBOSITY="error",
    TOKENIZERS_PARALLELISM="false",
    OMP_NUM_THREADS="1",
    NO_COLOR="1",
    COLUMNS="120",
)
if not Path("/dev/nvidia0").exists():
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is first imported, which torch may do
os.environ.pop("LORGNETTE_DEBUG", None)
os.environ.pop("FORCE_COLOR", None)

import jaxtyping
import pytest
import torch
from hypothesis import settings

# A slow shared machine is no bug; the same examples every time make a failure one can come back to.
settings.register_profile("lorgnette", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("lorgnette")


# jaxtyping's import hook reads no .pyc while a module of ours is being imported, so what ours import is imported first.
FIRST = (
    "altair", "datasets", "fastapi", "pandas", "pydantic", "scipy.optimize", "scipy.stats", "sklearn.manifold",
    "sklearn.metrics", "torch._dynamo", "torch.distributed", "torch.utils.flop_counter", "torchmetrics",
    "transformers.masking_utils", "transformers.modeling_utils", "transformers.models.auto.modeling_auto",
    "transformers.trainer", "xarray",
)  # fmt: skip


_jaxtyped = jaxtyping.jaxtyped


def _is_shaped(annotation: Any) -> bool:
    """An array with a shape."""
    is_array = isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray)
    return is_array or (get_origin(annotation) is not Literal and any(map(_is_shaped, get_args(annotation))))


def _is_quoted(annotation: Any) -> bool:
    """A name in quotes, which may be an array with a shape."""
    if isinstance(annotation, str | ForwardRef):
        return True
    return get_origin(annotation) is not Literal and any(map(_is_quoted, get_args(annotation)))


def checked(function: Any = None, *, typechecker: Callable[[Any], Any]) -> Any:
    """Types and shapes of every call are checked.

    jaxtyping alone would check every argument twice, and beartype would write its checks anew whenever a function
    inside another is made: in the laws of lenses, that was a fifth of the time.
    """
    if function is None:
        return partial(checked, typechecker=typechecker)
    own = vars(function).get("__init__") if dataclasses.is_dataclass(function) else function
    if not inspect.isfunction(own) or any(map(_is_quoted, own.__annotations__.values())):
        return _jaxtyped(function, typechecker=typechecker)
    new = _typed(own, typechecker)
    if any(map(_is_shaped, own.__annotations__.values())):
        new = _in_a_context(new)
    if own is function:
        return new
    function.__init__ = new
    return function


_TYPED: dict[CodeType, tuple[dict[str, Any], FunctionType]] = {}
"""For the code of a function inside another: its annotations, and what beartype makes of it."""


def _typed(function: FunctionType, typechecker: Callable[[Any], Any]) -> Any:
    """A function whose types beartype checks."""
    if "<locals>" not in function.__qualname__:
        return typechecker(function)
    code, annotations = function.__code__, function.__annotations__
    if code not in _TYPED or _TYPED[code][0] != annotations:
        # Empty cells in place of what the function encloses, so that nothing of a test is kept.
        empty = FunctionType(code, function.__globals__, None, None, tuple(CellType() for _ in code.co_freevars))
        empty.__annotations__, empty.__qualname__ = annotations, function.__qualname__
        _TYPED[code] = annotations, typechecker(empty)
    made = _TYPED[code][1]
    if "__beartype_func" not in (made.__kwdefaults__ or ()):
        return typechecker(function)
    again = FunctionType(made.__code__, made.__globals__, None, made.__defaults__, made.__closure__)
    again.__kwdefaults__ = {**(made.__kwdefaults__ or {}), "__beartype_func": function}
    return wraps(function)(again)


def _in_a_context(function: Any) -> Any:
    """Names of axes stand for the same lengths throughout one call."""

    @wraps(function)
    def in_a_context(*arguments: Any, **keywords: Any) -> Any:
        with _jaxtyped("context"):
            return function(*arguments, **keywords)

    return in_a_context


jaxtyping.jaxtyped = checked


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return  # this process hands the tests out and runs none
    for name in FIRST:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)


@pytest.fixture(autouse=True)
def same_start() -> None:
    """Every test draws the same random numbers, whichever ran before it on this worker."""
    random.seed(0)
    torch.manual_seed(0)  # transformers' set_seed takes 25 times as long


@pytest.fixture(scope="module")
def few_steps() -> Iterator[None]:
    """For tests that need no probe, and no gate, that is trained to the end."""
    from lorgnette.lens.gating.fit import drawn_rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lorgnette.lens.probes.probe.LEAST_STEPS", 20)
        patch.setattr(
            "lorgnette.lens.gating.lens.drawn_rows", lambda texts, steps, *rest: drawn_rows(texts, min(steps, 2), *rest)
        )
        yield


def pytest_collection_finish() -> None:
    """What was imported stays: every training ends with a collection, which would go through all of torch again."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()
