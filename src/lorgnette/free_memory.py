"""How much memory is free: of the machine, of a container, and of what a process may take."""

import re
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def free_memory(device: object = "cpu") -> int | None:
    """Bytes that can still be taken on a device; None where the system does not tell."""
    if str(device).startswith("cuda"):
        import torch

        name = str(device)
        idle = torch.cuda.memory_reserved(name) - torch.cuda.memory_allocated(name)
        return int(torch.cuda.mem_get_info(name)[0]) + idle
    known = [size for size in (_of_machine(), _of_process(), _of_container()) if size is not None]
    return max(0, min(known)) if known else None


def _of_machine() -> int | None:
    return _kilobytes(Path("/proc/meminfo"), "MemAvailable")


def _of_process() -> int | None:
    """What a limit of the address space (`ulimit -v`) leaves."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    taken = _kilobytes(Path("/proc/self/status"), "VmSize")
    return None if limit == resource.RLIM_INFINITY or taken is None else limit - taken


def _of_container() -> int | None:
    """What the limit of a control group (version 2) leaves; the page cache can be given back."""
    try:
        most, taken = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        cached = re.search(r"^inactive_file (\d+)", (_CGROUP / "memory.stat").read_text(), re.MULTILINE)
    except OSError:
        return None
    if not (most.isdigit() and taken.isdigit()):
        return None
    return int(most) - int(taken) + (int(cached[1]) if cached else 0)


def _kilobytes(path: Path, name: str) -> int | None:
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) << 10 if found else None
