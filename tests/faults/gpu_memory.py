"""A GPU whose memory really runs out: `PYTHONPATH=. python tests/faults/gpu_memory.py` on a machine with CUDA.

A tensor takes all of the GPU but some hundred megabytes; then one batch holds the whole corpus. The look must halve it
until it fits and end with the numbers of a look in small batches. One JSON line per headroom; status 1 if one is wrong.
"""

import json
import sys
from pathlib import Path

import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[1]))
from tiny import word_pieces

import lorgnette as lo
from lorgnette.looking.passes import Passes

LENSES = ["weights", "norms"]
HEADROOMS = (300, 600, 1200, 2400)
TOLERANCE = 1e-4
"""Of sums in float32 over batches of other shapes."""


def subject() -> lo.Subject:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=97, hidden_size=768, intermediate_size=3072, num_hidden_layers=4, num_attention_heads=12
    )
    return lo.Subject(transformers.BertModel(config).eval().to("cuda"), word_pieces(), name="wide")


def ballast(headroom: int) -> torch.Tensor:
    """Takes what is free on the GPU, but for so many megabytes."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    return torch.empty(max(0, free - (headroom << 20)), dtype=torch.uint8, device="cuda")


def numbers(results: lo.Results) -> dict[str, float]:
    return {
        f"{name}.{key}": float(value.sum())
        for name, result in results.items()
        for key, value in result.data.data_vars.items()
    }


def largest_difference(one: dict[str, float], other: dict[str, float]) -> float:
    return max(abs(one[key] - other[key]) / max(abs(one[key]), 1e-3) for key in one)


def main() -> int:
    if not torch.cuda.is_available():
        print("This needs a GPU (CUDA).", file=sys.stderr)
        return 2
    looked_at = subject()
    texts = [" ".join(["the cat sat on a mat and slept"] * (1 + n % 7)) for n in range(20_000)]
    expected = numbers(lo.look(looked_at, texts, LENSES, batch_tokens=8192, progress=False))
    fitted, attempts = Passes._fitted, []
    Passes._fitted = lambda *given: attempts.append(fitted(*given)) or attempts[-1]
    wrong = 0
    for headroom in HEADROOMS:
        attempts.clear()
        taken = ballast(headroom)
        report = {"headroom_mb": headroom, "gpu": torch.cuda.get_device_name(), "taken_mb": taken.numel() >> 20}
        try:
            results = lo.look(looked_at, texts, LENSES, batch_tokens=10**7, progress=False)
            difference = largest_difference(expected, numbers(results))
            ok = attempts.count(False) > 0 and difference < TOLERANCE
            report |= {"ok": ok, "halvings": attempts.count(False), "batches": attempts.count(True)}
            report |= {"largest_relative_difference": difference}
        except Exception as error:
            report |= {
                "ok": False,
                "halvings": attempts.count(False),
                "error": f"{type(error).__name__}: {error}"[:300],
            }
        del taken
        print(json.dumps(report), flush=True)
        wrong += not report["ok"]
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
