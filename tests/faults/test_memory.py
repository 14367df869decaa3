"""Memory that really runs out: a process with a limited address space finishes, with the numbers of one without."""

import json
import sys

import pytest
import torch
from processes import run

from lorgnette.looking.passes import out_of_memory

SCRIPT = """
import ctypes, json, re, resource, sys
import torch, transformers
from tiny import word_pieces
import lorgnette as lo

ARENAS = -8  # M_ARENA_MAX: glibc reserves 64 MiB of addresses, which are no memory, for a thread that comes first
if hasattr(ctypes.CDLL(None), "mallopt"):
    ctypes.CDLL(None).mallopt(ARENAS, 1)
torch.manual_seed(0)
config = transformers.BertConfig(vocab_size=97, hidden_size=64, intermediate_size=2048, num_hidden_layers=2,
                                 num_attention_heads=2, max_position_embeddings=64)
subject = lo.Subject(transformers.BertModel(config).eval(), word_pieces(), name="wide")
texts = [" ".join(["the cat sat on a mat and slept"] * (1 + n % 5)) for n in range(400)]
lo.look(subject, texts[:8], ["weights", "norms"], progress=False)  # libraries have taken what they need for good
attempts = []
Passes = sys.modules["lorgnette.looking.passes"].Passes
fitted = Passes._fitted
Passes._fitted = lambda *given: attempts.append(fitted(*given)) or attempts[-1]
headroom = int(sys.argv[1])
if headroom:
    now = int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10
    resource.setrlimit(resource.RLIMIT_AS, (now + (headroom << 20),) * 2)
found = lo.look(subject, texts, ["weights", "norms"], batch_tokens=10**7, progress=False)
numbers = {name: {str(key): float(value.sum()) for key, value in result.data.data_vars.items()}
           for name, result in found.items()}
print(json.dumps({"failed": attempts.count(False), "numbers": numbers}))
"""


def looked(headroom):
    done = run("-c", SCRIPT, str(headroom))
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of the address space are Linux's")
def test_a_batch_that_does_not_fit_is_halved_until_it_does():
    free, limited = looked(0), looked(100)
    assert free["failed"] == 0
    assert 1 <= limited["failed"] <= 16
    for name, values in free["numbers"].items():
        for key, value in values.items():
            assert limited["numbers"][name][key] == pytest.approx(value, rel=1e-5, abs=1e-6), (name, key)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        MemoryError(),
        RuntimeError("could not create a primitive"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: 12"),
        RuntimeError("std::bad_alloc"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_what_libraries_say_when_memory_runs_out(error):
    assert out_of_memory(error)


def test_what_is_no_shortage():
    assert not out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not out_of_memory(KeyError("out of memory"))
