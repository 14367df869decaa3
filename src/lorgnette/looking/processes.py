"""One process or several: who takes which batch. Everything else is torchmetrics' own synchronisation."""

import os
from dataclasses import dataclass

import torch.distributed as dist


@dataclass(frozen=True)
class ProcessRank:
    """This process's number and how many there are."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    @staticmethod
    def join() -> "ProcessRank":
        """Join the processes that `torchrun` started; alone if there are none."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world == 1 and not (dist.is_available() and dist.is_initialized()):
            return ProcessRank()
        if not dist.is_initialized():
            # On a GPU too: the lenses' states are sums in float64 on the CPU, which nccl does not carry.
            dist.init_process_group("gloo")
        return ProcessRank(dist.get_rank(), dist.get_world_size())
