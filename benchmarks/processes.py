"""Tokens per second of `look` with 1, 2, 4 and 8 processes under torchrun: `python -m benchmarks.processes`.

Each process has one thread, reads the corpus and tokenises its own share. The shape is e5-small's, texts have 128
tokens, and the time is that of the slowest process, with the results made and agreed on.
"""

import json
import os
import subprocess
import sys
import time

TEXTS, TOKENS = 512, 128


def measure() -> None:
    """What each process does."""
    import torch
    import torch.distributed as dist

    from benchmarks.shapes import E5_SMALL, subject, texts
    from lorgnette.looking.look import look

    torch.set_num_threads(1)
    watched = subject(E5_SMALL)
    look(watched, texts(16, TOKENS), "weights", progress=False)  # joins the processes, and imports what is needed
    corpus = texts(TEXTS, TOKENS)
    if dist.is_initialized():
        dist.barrier()
    start = time.perf_counter()
    look(watched, corpus, "weights", progress=False)
    if dist.is_initialized():
        dist.barrier()
    if os.environ.get("RANK", "0") == "0":
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": round(seconds, 2), "tokens_per_second": round(TEXTS * TOKENS / seconds)}))


def main() -> int:
    cores = len(os.sched_getaffinity(0))
    first = 0.0
    for processes in (1, 2, 4, 8):
        if processes > cores:
            break
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
        more = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(
            [*command, "-m", "benchmarks.processes", "measure"], env=more, capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(done.stderr[-2000:], file=sys.stderr)
            return 1
        found = json.loads(done.stdout.strip().splitlines()[-1])
        first = first or found["tokens_per_second"]
        ratio = round(found["tokens_per_second"] / first, 2)
        print(json.dumps({"bench": "processes", "processes": processes, "cores": cores, "speedup": ratio, **found}))
    return 0


if __name__ == "__main__":
    sys.exit(measure() if sys.argv[1:] == ["measure"] else main())
