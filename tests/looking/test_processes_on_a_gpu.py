"""Two processes that share one GPU give the numbers of one process."""

import os
import socket

import pytest
import torch
import xarray as xr

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: two processes need one to share")
LENSES = ("weights", "norms:sample=0", "sinks", "importance")


def looked(rank: int, world: int, port: int, folder: str) -> None:
    from tiny import examples, subject

    from lorgnette.looking.look import look

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    tiny = subject("bert-classifier", dtype=torch.float32)
    tiny.model.to("cuda")
    look(tiny, examples((9, 4, 6, 12, 7, 5, 8)), list(LENSES), batch_tokens=24, progress=False, out=folder)
    if world > 1:
        torch.distributed.destroy_process_group()


def test_two_processes_on_one_gpu(tmp_path):
    from lorgnette.results import Results

    for world in (1, 2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        torch.multiprocessing.spawn(looked, args=(world, port, str(tmp_path / str(world))), nprocs=world)
    alone, together = (Results.load(tmp_path / str(world)) for world in (1, 2))
    assert list(alone) == list(together)
    for name in alone:
        xr.testing.assert_allclose(alone[name].data, together[name].data, rtol=1e-5, atol=1e-6)
