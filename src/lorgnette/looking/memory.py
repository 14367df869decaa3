"""Out of memory: recognise it, and free memory before a smaller attempt."""

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
    """Whether this error means that memory ran out, which libraries report in many ways."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError | OSError) and any(sign in str(error) for sign in SIGNS)


def let_go() -> None:
    """Free what is no longer used: cycles that hold tensors, and blocks cached by the GPU's allocator."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
