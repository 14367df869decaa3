"""Which process takes which texts. torchmetrics does the rest of the synchronisation."""

import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from lorgnette.errors import UserError
from lorgnette.looking.pulse import WAITING, Pulse

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

T = TypeVar("T")
PATIENCE = timedelta(days=30)
"""How long a process waits for a slower one. It does not wait for one that is lost (`Pulse`)."""
_JOINED = count()
"""How often the processes have met."""
_NEEDED = ("RANK", "MASTER_ADDR", "MASTER_PORT")
"""The variables that a launcher of several processes sets for each of them, besides WORLD_SIZE."""


@dataclass(frozen=True)
class ProcessRank:
    """This process's number and how many there are."""

    rank: int = 0
    world: int = 1
    group: "ProcessGroup | None" = field(default=None, repr=False, compare=False)
    """The group in which the processes wait for each other."""
    pulse: Pulse | None = field(default=None, repr=False, compare=False)
    """The signs of life by which each process knows that the others are alive."""

    @property
    def first(self) -> bool:
        return self.rank == 0

    def from_all(self, mine: T) -> list[T]:
        """Gather what every process has. Waits for all of them; a UserError if one is lost."""
        if self.world == 1:
            return [mine]
        from lorgnette.lens.states import from_all

        # In a thread of its own: a host that lost its power closes no connection, and gloo would wait on.
        gathered: Future[list[T]] = Future()
        act = (gathered, lambda: from_all(mine, self.group))
        Thread(target=_settle, args=act, name=WAITING, daemon=True).start()
        while self.pulse is not None and not wait([gathered], timeout=1.0).done:
            if (lost := self.pulse.lost()) is not None:
                raise lost
        return gathered.result()

    @staticmethod
    def join() -> "ProcessRank":
        """Join the processes that `torchrun` started; alone if there are none.

        Variables that are left over from another launch are refused, or, if they cannot matter, a note says so.
        """
        import torch.distributed as dist
        from torch.distributed.distributed_c10d import _get_default_store

        if not (dist.is_available() and dist.is_initialized()):
            if _world_size() == 1:
                _note_leftover_rank()
                return ProcessRank()
            _refuse_half_a_launch()
            # On a GPU too: the lenses' states are sums in float64 on the CPU, which nccl does not carry.
            dist.init_process_group("gloo")
        world = dist.get_world_size()
        if world == 1:
            return ProcessRank()
        group, store, rank = dist.new_group(backend="gloo", timeout=PATIENCE), _get_default_store(), dist.get_rank()
        return ProcessRank(rank, world, group, Pulse(store, rank, world, next(_JOINED)))

    def beating(self) -> AbstractContextManager[None]:
        """Show the other processes that this one is alive, while the context is open."""
        return nullcontext() if self.pulse is None else self.pulse.beating()


def _settle(future: "Future[T]", act: Callable[[], T]) -> None:
    try:
        future.set_result(act())
    except BaseException as error:
        future.set_exception(error)


def is_first() -> bool:
    """Whether this process prints and writes: always, unless it is one of several and not the first of them."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"


def _world_size() -> int:
    given = os.environ.get("WORLD_SIZE", "1")
    if not (given.isascii() and given.isdigit() and int(given) > 0):
        raise UserError(
            f"The environment variable WORLD_SIZE is {given[:40]!r}, not a number of processes. Remove it (unset "
            "WORLD_SIZE) to run one process, or start several with torchrun."
        )
    return int(given)


def _refuse_half_a_launch() -> None:
    """Refuse a WORLD_SIZE above one without a valid RANK and an address: the processes would wait for ever."""
    world = _world_size()
    what = f"The environment variable WORLD_SIZE says that there are {world} processes, but"
    do = "If it is left over from another launch, remove it (unset WORLD_SIZE RANK); to run several, use torchrun."
    if missing := [name for name in _NEEDED if not os.environ.get(name)]:
        raise UserError(f"{what} {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set. {do}")
    rank = os.environ["RANK"]
    if not (rank.isascii() and rank.isdigit() and int(rank) < world):
        raise UserError(f"{what} RANK is {rank[:40]!r}; expected a number from 0 to {world - 1}. {do}")


def _note_leftover_rank() -> None:
    rank = os.environ.get("RANK", "0")
    if rank != "0":
        print(
            f"lorgnette: the environment variable RANK is {rank[:40]!r}, but there is only one process (WORLD_SIZE is "
            f"{'1' if 'WORLD_SIZE' in os.environ else 'not set'}); it is ignored.",
            file=sys.stderr,
        )
