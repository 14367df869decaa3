"""The small part of the net: what lenses answered when their contract was last rewritten, they still answer.

`PYTHONPATH=src:tests python tests/net/test_net.py` writes the answers anew, after a change that is meant and announced.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import lorgnette as lo
from net.answers import made, subjects, texts_for

FILE = Path(__file__).parent / "numbers.json"
KINDS = ("bert", "llama", "marian", "classifier")
NAMES = ("weights", "norms", "norms by token", "sinks", "rollout", "geometry", "convexity", "distances", "frequency")


def numbers(kind: str, name: str) -> dict[str, list[float]]:
    """Of every variable: the sum of its numbers, the sum of their squares, and how many there are."""
    torch.manual_seed(0)
    data = lo.look(subjects()[kind](), texts_for(kind, name), [made(name)], progress=False, batch_tokens=24)
    (result,) = data.values()
    out = {}
    for variable, array in result.data.data_vars.items():
        if array.dtype.kind in "fi" and "effective_rank" not in str(variable):  # which depends on what rounding leaves
            cells = array.values[np.isfinite(array.values)].astype(float)
            out[str(variable)] = [float(cells.sum()), float((cells**2).sum()), float(cells.size)]
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_numbers_as_before(kind):
    recorded = json.loads(FILE.read_text(encoding="utf-8"))
    for name in NAMES:
        now, before = numbers(kind, name), recorded[f"{kind} {name}"]
        assert set(before) <= set(now), name
        for variable, expected in before.items():
            np.testing.assert_allclose(now[variable], expected, rtol=1e-6, atol=1e-7, err_msg=f"{name} {variable}")


if __name__ == "__main__":
    found = {f"{kind} {name}": numbers(kind, name) for kind in KINDS for name in NAMES}
    rows = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in found.items())
    FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
