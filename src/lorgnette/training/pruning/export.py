"""Models as ONNX files, which run in onnxruntime without transformers and without us."""

import inspect
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lorgnette.errors import UserError
from lorgnette.files import written_whole
from lorgnette.training.pruning.removal import plain_copy
from lorgnette.types import PreTrainedModel

INPUTS = ("input_ids", "attention_mask", "token_type_ids", "decoder_input_ids")
"""What a graph may be given, in this order."""
TOLERANCE = 1e-4
"""Of the largest logit: how far onnxruntime may be from the model, both in float32."""


class _Logits(nn.Module):
    """The graph: token ids in, logits (or, of an encoder without a head, the last states) out."""

    def __init__(self, model: PreTrainedModel, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names
        taken = inspect.signature(model.forward).parameters.values()
        takes = any(one.name == "use_cache" or one.kind is one.VAR_KEYWORD for one in taken)
        # The Trainer writes use_cache into the config of every model, also of those that know no such thing.
        self.more = {"use_cache": False} if takes and hasattr(model.config, "use_cache") else {}

    def forward(self, *given: Tensor) -> Tensor:
        output = self.model(**dict(zip(self.names, given, strict=True)), **self.more, return_dict=True)
        return output["logits"] if "logits" in output else output["last_hidden_state"]


def export_onnx(model: PreTrainedModel, path: Path | str, *, example: dict[str, Tensor]) -> Path:
    """Write a model as ONNX: any batch, any length up to the model's, logits as the only output; then try it.

    `example` is a batch as the model takes it (labels are left out). A translation model becomes its teacher-forced
    graph: source and target tokens in, logits of every next target token out, without a cache. The file is run in
    onnxruntime on the example, cut to a shorter one too, and must give the model's logits.
    """
    refuse_without_packages()
    given = {name: example[name] for name in INPUTS if name in example}
    copied = plain_copy(model).eval().cpu().float()  # the caller's stays as it is: precision, device, mode
    copied.set_attn_implementation("eager")  # matrix products, which every runtime knows
    graph = _Logits(copied, tuple(given)).eval()
    batch = {name: _two_or_more(tensor.cpu()) for name, tensor in given.items()}
    path = Path(path)
    with _quiet(), torch.no_grad(), written_whole(path) as partial:
        _write(graph, partial, batch)
        _compare(graph, partial, batch)
    return path


def _write(graph: nn.Module, path: Path, batch: dict[str, Tensor]) -> None:
    try:
        torch.onnx.export(
            graph,
            tuple(batch.values()),
            path,
            input_names=list(batch),
            output_names=["logits"],
            dynamic_shapes=(_dynamic(batch),),
            dynamo=True,
            external_data=False,
            optimize=True,
            verbose=False,
        )
    except torch.onnx.OnnxExporterError as error:
        raise UserError(
            "this model cannot be written as ONNX (torch.onnx.export could not follow it): pass --no-onnx."
        ) from error


def _two_or_more(tensor: Tensor) -> Tensor:
    """A dimension of size 1 in the example would become a constant of the graph."""
    return tensor if len(tensor) > 1 else tensor.repeat(2, 1)


def _dynamic(batch: dict[str, Tensor]) -> tuple[dict[int, Any], ...]:
    rows = torch.export.Dim("batch")
    columns = torch.export.Dim("length", min=2)
    target = torch.export.Dim("target_length", min=2)
    return tuple({0: rows, 1: target if name.startswith("decoder") else columns} for name in batch)


def _compare(graph: nn.Module, path: Path, batch: dict[str, Tensor]) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    shorter = {name: tensor[:1, : max(2, tensor.shape[1] // 2)] for name, tensor in batch.items()}
    for texts in (batch, shorter):
        expected = graph(*texts.values())
        (logits,) = session.run(None, {name: tensor.numpy() for name, tensor in texts.items()})
        off = (torch.from_numpy(logits) - expected).abs().max() / expected.abs().max()
        if not off <= TOLERANCE:
            raise UserError(
                f"the ONNX graph gives logits that are off by {float(off):.1e} of the largest: it was not kept. Pass "
                "--no-onnx, and report the model."
            )


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter speaks of its own future; that is nothing to the user."""
    loud = logging.getLogger("torch.onnx"), logging.getLogger("onnxscript"), logging.getLogger("onnx_ir")
    levels = [logger.level for logger in loud]
    for logger in loud:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loud, levels, strict=True):
            logger.setLevel(level)


def refuse_without_packages() -> None:
    from importlib.util import find_spec

    absent = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if absent:
        raise UserError(
            f"ONNX export needs {', '.join(absent)}: pip install 'lorgnette[export]', or leave it out with --no-onnx."
        )
