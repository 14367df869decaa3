"""Merging many shards: seconds, and the memory that it adds, for copies of one shard with the numbers of all."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.harness import Figure

SHARDS = 1024
_MERGE = """
import json, shutil, sys, time
from pathlib import Path

import torch

from benchmarks.shapes import BERT_BASE, subject, texts
from lorgnette.looking.look import look
from lorgnette.looking.merging import merge
from lorgnette.looking.shards import HEADER, STATES


def peak() -> float:
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024


torch.set_num_threads(1)
folder, shards = Path(sys.argv[1]), int(sys.argv[2])
watched = subject(BERT_BASE)
look(watched, texts(shards, 16), ["weights", "norms:sample=0"], shard=(1, shards), out=folder / "1", progress=False)
header = json.loads((folder / "1" / HEADER).read_text())
for number in range(2, shards + 1):
    (folder / str(number)).mkdir()
    shutil.copy(folder / "1" / STATES, folder / str(number) / STATES)
    (folder / str(number) / HEADER).write_text(json.dumps({**header, "shard": [number, shards]}))
before, start = peak(), time.perf_counter()
merged = merge([folder / str(number) for number in range(1, shards + 1)], subject=watched)
seconds = time.perf_counter() - start
assert merged["weights"].provenance.texts == shards
size = sum(file.stat().st_size for file in (folder / "1").iterdir())
print(json.dumps({"seconds": seconds, "added_MiB": peak() - before, "bytes_a_shard": size}))
"""


def merge_shards() -> Iterator[Figure]:
    """1,024 shards of `weights` and `norms:sample=0`, BERT-base's shape, with the model already loaded."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _MERGE, folder, str(SHARDS)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    yield Figure("merge_seconds", found["seconds"], 30.0, details={"shards": SHARDS, **found})
    yield Figure("merge_added_MiB", found["added_MiB"], 256.0, details={"shards": SHARDS})


BENCHES = {"merge": merge_shards}
