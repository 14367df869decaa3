"""Parts, in which a lens accumulates: they hold the numbers of a batch until the whole batch has succeeded."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from lorgnette.kernels import made_for

if TYPE_CHECKING:
    from lorgnette.lens.base import Lens
    from lorgnette.texts.batch import Batch

T = TypeVar("T")


class Part(Generic[T]):
    """Something that accumulates: means over texts, a sample, a cloud of vectors, the numbers of each text.

    A lens declares its parts in `allocate` and adds to them; everything else is between the parts and whoever runs the
    lens. Of every batch:

        begin(batch)    it is about to go through the model
        add(…)          the lens adds numbers, which are only held (each part has its own `add`)
        commit()        the batch has gone through: take what is held into the states
        discard()       it has not: let go of what is held

    A part declares its states with `lens.state(name, start, merge)`, which also says how those of several processes,
    shards or interrupted runs merge. Parts commit in the order in which they were made, so one that hands its numbers
    to another comes before it.
    """

    on_cpu: bool = False
    """Whether `commit` reads numbers on the CPU."""

    def __new__(cls, lens: "Lens | None" = None, *arguments: object, **options: object) -> "Part[T]":
        """Make the class that is fastest on the device of the model; a copy keeps its class."""
        return super().__new__(cls if lens is None else made_for(cls, lens.states.device))

    def __init__(self, lens: "Lens") -> None:
        self.lens = lens
        self.held: list[T] = []
        lens.states.parts.append(self)

    def begin(self, batch: "Batch") -> None:
        """A batch is about to go through the model."""

    def commit(self) -> None:
        """Add the held items to the states, those that are alike together."""
        held, self.held = self.held, []
        for some in alike(held, self.kind_of):
            self.take(some)

    def discard(self) -> None:
        """Drop what is held: the batch has failed."""
        self.held = []

    def kind_of(self, item: T) -> Hashable:
        """A key that is equal for items which `take` can process together."""
        return None

    def take(self, items: Sequence[T]) -> None:
        """Take items that are alike into the states."""
        raise NotImplementedError


class Waiting(Part[T]):
    """Holds what a lens read at each site until the batch is done, then hands back items of one kind together.

        self.sums = Waiting(self, self._take, alike=lambda one: one.total.shape)    # in `allocate`
        self.sums.add(read)                                                         # in `update`
        def _take(self, read: Sequence[…]) -> None: …                               # adds to other parts

    Layers are mostly alike, and one operation on all of them takes a fraction of the time of one on each.
    """

    def __init__(
        self,
        lens: "Lens",
        take: Callable[[Sequence[T]], None],
        alike: Callable[[T], Hashable] = id,
        *,
        on_cpu: bool = False,
    ) -> None:
        """`on_cpu`: what `take` does is decided by numbers on the CPU."""
        super().__init__(lens)
        self._take, self._alike, self.on_cpu = take, alike, on_cpu

    def add(self, item: T) -> None:
        self.held.append(item)

    def kind_of(self, item: T) -> Hashable:
        return self._alike(item)

    def take(self, items: Sequence[T]) -> None:
        self._take(items)


class OncePerBatch(Part[object], Generic[T]):
    """What a lens makes of a batch once, for all its calls: gold trees, say.

    self.begun = OncePerBatch(self, self._begin)    # in `allocate`
    self.begun(batch)                               # in `update`: calls `_begin` for the first call of the batch
    """

    def __init__(self, lens: "Lens", make: "Callable[[Batch], T]") -> None:
        super().__init__(lens)
        self._make = make
        self._made: tuple[Batch, T] | None = None

    def __call__(self, batch: "Batch") -> T:
        if self._made is None or self._made[0] is not batch:
            self._made = batch, self._make(batch)
        return self._made[1]

    def commit(self) -> None:
        """Forget the batch."""
        self._made = None

    discard = commit


def alike(items: Iterable[T], kind_of: Callable[[T], Hashable]) -> Iterable[list[T]]:
    """Items in groups of one kind, in the order in which the kinds come."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(kind_of(item), []).append(item)
    return groups.values()
