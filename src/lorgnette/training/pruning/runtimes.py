"""How long two models take on one thread of this machine: one text and 32, in torch and in ONNX Runtime."""

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lorgnette.models.pruned.stock import cache_is_short
from lorgnette.training.pruning import speed
from lorgnette.training.pruning.removal import plain_copy
from lorgnette.types import Json, PreTrainedModel

BATCHES = (1, 32)
PASSES = 3
"""The fewest pairs of passes that are timed, however long they take."""


def runtimes(
    whole: PreTrainedModel,
    smaller: PreTrainedModel,
    batch: Mapping[str, Tensor],
    graphs: tuple[Path, Path] | None,
) -> list[Json]:
    """Milliseconds of a pass before and after (quartiles), and the ratio of pairs of passes with its middle half.

    Models and ONNX files (`graphs`) run in turns on the CPU; of a translation model it is one teacher-forced pass, and
    also the greedy generation of as many tokens as its reference has.
    """
    models = [plain_copy(model).eval().cpu().float() for model in (whole, smaller)]
    out = []
    with _one_thread(), torch.inference_mode():
        for count in BATCHES:
            given = {name: _rows(tensor.cpu(), count) for name, tensor in batch.items()}
            passes = [lambda model=model, given=given: model(**given) for model in models]
            out.append(_timed("torch", given, passes))
            if graphs is not None:
                out.append(_timed("onnxruntime", given, [_session(path, given) for path in graphs]))
            if "decoder_input_ids" in given:
                tokens = given["decoder_input_ids"].shape[1]
                made = _timed("generation", given, [_generation(model, given, tokens) for model in models])
                out.append(made | {"generated": tokens})
    return out


def _generation(model: PreTrainedModel, given: Mapping[str, Tensor], tokens: int) -> Callable[[], object]:
    """Translating greedily, exactly so many tokens."""
    inputs = {name: tensor for name, tensor in given.items() if not name.startswith("decoder")}
    config = copy.deepcopy(model.generation_config)
    config.update(num_beams=1, do_sample=False, early_stopping=False, length_penalty=1.0, max_length=None)
    config.update(max_new_tokens=tokens, min_new_tokens=tokens, use_cache=not cache_is_short(model))
    return lambda: model.generate(**inputs, generation_config=config)


def runtime_name(each: Json) -> str:
    """What was timed."""
    if each["runtime"] == "generation":
        return f"torch, generating {each['generated']} tokens"
    return {"torch": "torch", "onnxruntime": "ONNX Runtime"}[each["runtime"]]


def runtime_lines(times: list[Json]) -> list[str]:
    """A line for every runtime and batch."""
    said = []
    for each in times:
        (before, after), (low, high) = (each["milliseconds"][when][1] for when in ("before", "after")), each["spread"]
        gain = f"× {each['measured']:.2f}" if not low <= 1 <= high else "no measurable difference"
        texts = "1 text" if each["batch"][0] == 1 else f"{each['batch'][0]} texts"
        said.append(
            f"one thread, {runtime_name(each)}, {texts} of {each['batch'][1]} tokens: "
            f"{before:.1f} → {after:.1f} ms, {gain} (middle half {low:.2f}–{high:.2f})"
        )
    return said


def _rows(tensor: Tensor, count: int) -> Tensor:
    return tensor.repeat(-(-count // len(tensor)), *[1] * (tensor.dim() - 1))[:count]


def _timed(runtime: str, given: Mapping[str, Tensor], passes: Sequence[Callable[[], object]]) -> Json:
    times: list[list[float]] = []
    until = time.perf_counter() + speed.SECONDS / 2
    while len(times) <= PASSES or time.perf_counter() < until:
        times.append([_seconds(each) for each in passes])
    pairs = np.array(times[1:])
    low, middle, high = np.quantile(pairs[:, 0] / pairs[:, 1], [0.25, 0.5, 0.75]).tolist()
    quartiles = np.quantile(1000 * pairs, [0.25, 0.5, 0.75], axis=0).T.tolist()
    return {
        "runtime": runtime,
        "batch": list(given["input_ids"].shape),
        "milliseconds": dict(zip(("before", "after"), quartiles, strict=True)),
        "measured": middle,
        "spread": [low, high],
        "passes": len(pairs),
    }


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _session(path: Path, given: Mapping[str, Tensor]) -> Callable[[], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    named = {each.name for each in session.get_inputs()}
    arrays = {name: tensor.numpy() for name, tensor in given.items() if name in named}
    return lambda: session.run(None, arrays)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
