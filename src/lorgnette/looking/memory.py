"""Memory that ran out: how it is recognised, and how it is given back before a smaller attempt."""

import gc

import torch

SIGNS = (
    "out of memory",  # CUDA, HIP, MPS
    "can't allocate memory",  # the allocator of the CPU
    "not enough memory",  # … on Windows
    "bad_alloc",
    "ALLOC_FAILED",  # cuBLAS, cuDNN, cuSPARSE
    "could not create a primitive",  # oneDNN
    "could not create a memory",
    "Cannot allocate memory",  # the operating system
)


def out_of_memory(error: BaseException) -> bool:
    """Whether this was thrown because memory ran out; libraries say it in many ways."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError | OSError) and any(sign in str(error) for sign in SIGNS)


def let_go() -> None:
    """Give back what nobody holds any more: cycles that keep tensors, and blocks that the GPU's allocator caches."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
