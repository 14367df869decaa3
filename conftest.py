"""What every test shares: no network, few threads, no progress bars."""

import dataclasses
import gc
import importlib
import importlib.util
import inspect
import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
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
    """An array with a shape, or a name in quotes that may be one."""
    if isinstance(annotation, str | ForwardRef):
        return True
    is_array = isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray)
    return is_array or (get_origin(annotation) is not Literal and any(map(_is_shaped, get_args(annotation))))


def checked(function: Any = None, *, typechecker: Callable[[Any], Any]) -> Any:
    """Types of every call are checked. Where no annotation has a shape, by beartype alone: it costs a quarter."""
    if function is None:
        return partial(checked, typechecker=typechecker)
    own = vars(function).get("__init__") if dataclasses.is_dataclass(function) else function
    if not inspect.isfunction(own) or any(map(_is_shaped, own.__annotations__.values())):
        return _jaxtyped(function, typechecker=typechecker)
    if own is function:
        return typechecker(function)
    function.__init__ = typechecker(own)
    return function


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
