"""Two processes that share one GPU give the numbers of one process."""

import os
import socket

import pytest
import torch
import xarray as xr

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: two processes need one to share")
LENSES = ("weights", "norms:sample=0", "sinks", "importance")


def looked(rank: int, world: int, port: int, folder: str, backend: str | None = None) -> None:
    from tiny import examples, subject

    from lorgnette.looking.look import look

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if backend is not None:
        torch.distributed.init_process_group(backend)
    tiny = subject("bert-classifier", dtype=torch.float32)
    tiny.model.to("cuda")
    look(tiny, examples((9, 4, 6, 12, 7, 5, 8)), list(LENSES), batch_tokens=24, progress=False, out=folder)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(("world", "backend"), [(2, None), (1, "nccl")], ids=["two over gloo", "one over nccl"])
def test_processes_on_one_gpu(world, backend, tmp_path):
    """Two processes cannot share a GPU under nccl, which refuses that itself: one shows that states go through it."""
    from lorgnette.results import Results

    for number, over, name in ((1, None, "alone"), (world, backend, "together")):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        torch.multiprocessing.spawn(looked, args=(number, port, str(tmp_path / name), over), nprocs=number)
    alone, together = (Results.load(tmp_path / name) for name in ("alone", "together"))
    assert list(alone) == list(together)
    for name in alone:
        xr.testing.assert_allclose(alone[name].data, together[name].data, rtol=1e-5, atol=1e-6)
