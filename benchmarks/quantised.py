"""The table of quantised weights in docs/language-models.md: `python -m benchmarks.quantised MODEL`, for ten minutes.

MODEL is a folder (or hub name) of a language model, SmolLM2-135M on the page. torchao quantises it on the CPU; the
norms of the quantised model are compared with those of a plain one that has the dequantised weights. The figures go to
`quantised.json`, and the table in the page is replaced.
"""

import copy
import json
import re
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import lorgnette as lo
from lorgnette.files import written_whole
from lorgnette.models.linear import linear_weights

FIGURES = Path(__file__).with_name("quantised.json")
PAGE = Path(__file__).parents[1] / "docs" / "language-models.md"
HEADER = "| torchao | maps | difference over what rounding explains | norms, relative to the dequantised model |"
TEXTS = [
    "The cat sat on the mat, and nobody minded.",
    "The capital of France is Paris, and that of Italy is Rome.",
    "She poured the coffee before anyone had asked, and read the letter twice.",
    "A prime number has no divisors but one and itself.",
]


def formats() -> dict[str, Callable[[], Any]]:
    """What torchao makes of a linear map, by the name in the table."""
    from torchao import quantization
    from torchao.quantization.granularity import PerGroup

    return {
        "int8 weights": quantization.Int8WeightOnlyConfig,
        "int4 weights, groups of 32": lambda: quantization.IntxWeightOnlyConfig(torch.int4, PerGroup(32)),
        "FP8 weights": quantization.Float8WeightOnlyConfig,
        "int8 weights and inputs": quantization.Int8DynamicActivationInt8WeightConfig,
    }


def quantised(model: str, make: Callable[[], Any]) -> lo.Subject:
    """The model with every linear map but the output head quantised."""
    from torchao.quantization import quantize_

    subject = lo.load(model, dtype="float32", device="cpu")
    quantize_(subject.model, make(), filter_fn=lambda module, path: type(module) is nn.Linear and "head" not in path)
    return lo.Subject(subject.model, subject.tokenizer, name=subject.name)


def dequantised(subject: lo.Subject) -> lo.Subject:
    """The same model with plain linear maps, of the weights that the packed ones stand for."""
    model = copy.deepcopy(subject.model)
    for path, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and type(module.weight) is not nn.Parameter:
            weight, bias = linear_weights(module)
            plain = nn.Linear(*weight.shape, bias=bias is not None)
            plain.weight = nn.Parameter(weight.T.clone())
            if bias is not None:
                plain.bias = nn.Parameter(bias.clone())
            model.set_submodule(path, plain)
    return lo.Subject(model, subject.tokenizer, name="dequantised")


def measured(subject: lo.Subject) -> dict[str, Any]:
    """What `check` says of the maps, and how far the norms are from those of the plain model."""
    checks = {one.name: one for one in subject.check()}
    failed = [f"{one.name}: {one.detail}" for one in checks.values() if not one.ok]
    found, expected = (
        lo.look(each, TEXTS, "norms:sample=0", progress=False)["norms"].data["norm"].values
        for each in (subject, dequantised(subject))
    )
    apart = np.nanmax(np.abs(found - expected)) / np.nanmax(np.abs(expected))
    return {"maps": checks["quantised maps = x · W + b"].detail, "norms": float(apart), "failed": failed}


def table(figures: dict[str, Any]) -> list[str]:
    """The table, line by line, and what it was made with."""
    lines = [HEADER, "|---|---|---|---|"]
    for name, row in figures["formats"].items():
        share, maps = re.findall(r"differences are (\S+) of .* in (\d+) maps", row["maps"])[0]
        norms = "0" if row["norms"] == 0 else f"{row['norms']:.0e}".replace("e-0", "e-")
        lines.append(f"| {name} | {maps} | {share} | {norms} |")
    failed = [f"{name}: {told}" for name, row in figures["formats"].items() for told in row["failed"]]
    outcome = f"These checks failed: {'; '.join(failed)}." if failed else "All checks passed."
    made = f"torchao {figures['torchao']} and torch {figures['torch']}, on a CPU in float32"
    return [*lines, "", f"{outcome} Made with {made}."]


def replaced(page: str, lines: list[str]) -> str:
    """The page with this table in the place of its own, and of the sentence below it."""
    old = page.splitlines()
    first = old.index(HEADER)
    last = next(at for at in range(first, len(old)) if "Made with torchao" in old[at])
    return "\n".join([*old[:first], *lines, *old[last + 1 :]]) + "\n"


def main(model: str) -> None:
    warnings.simplefilter("ignore")
    figures: dict[str, Any] = {"torchao": version("torchao"), "torch": torch.__version__, "formats": {}}
    for name, make in formats().items():
        figures["formats"][name] = measured(quantised(model, make))
        print(name, figures["formats"][name], flush=True)
    with written_whole(FIGURES) as partial:
        partial.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), table(figures)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
