"""What several lenses want from one call, merged into one request, so that nothing is computed twice."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lorgnette.attending.sweep import Measured, Wanted, Watcher, per_head


class Union:
    """Several requests merged. Two tensors count as the same only if they are one object: comparing values costs time.

    All may differ in features and in the queries whose reading is summed; the keys among which a peak is sought must
    be the same, or a wish does not fit.
    """

    def __init__(self, wishes: Sequence[Wanted]) -> None:
        self.features: list[Tensor] = _distinct([wish.features for wish in wishes])
        self.received: list[Tensor] = _distinct([wish.received for wish in wishes])
        self.offsets: tuple[int, ...] = tuple(dict.fromkeys(offset for wish in wishes for offset in wish.offsets))
        self.wanted: Wanted = Wanted(
            features=_side_by_side(self.features),
            entropy=any(wish.entropy for wish in wishes),
            peak=any(wish.peak for wish in wishes),
            among=next((wish.among for wish in wishes if wish.among is not None), None),
            positions=any(wish.positions for wish in wishes),
            offsets=self.offsets,
            received=_stacked(self.received),
            context=any(wish.context for wish in wishes),
            sink=any(wish.sink for wish in wishes),
            log_sum=any(wish.log_sum for wish in wishes),
            block=_in_turn([wish.block for wish in wishes if wish.block is not None]),
            context_block=_in_turn([wish.context_block for wish in wishes if wish.context_block is not None]),
        )

    def part(self, wish: Wanted, measured: Measured) -> Measured:
        """The results of one request."""
        out = replace(measured, average=None, received=None, at=None)
        if wish.features is not None:
            start = 0
            for features in self.features:
                if features is wish.features:
                    break
                start += features.shape[-1]
            out.average = measured["average"][..., start : start + wish.features.shape[-1]]
        if wish.received is not None:
            place = next(number for number, queries in enumerate(self.received) if queries is wish.received)
            out.received = measured["received"] if len(self.received) == 1 else measured["received"][..., place]
        if wish.offsets:
            at = measured["at"]
            same = wish.offsets == self.offsets  # an index from a list would be copied to the GPU, which waits for it
            out.at = at if same else torch.stack([at[..., self.offsets.index(o)] for o in wish.offsets], -1)
        return out


def grouped(wishes: Sequence[Wanted]) -> list[list[Wanted]]:
    """The requests in compatible groups: within a group all want the peak among the same keys, or none does."""
    groups: list[tuple[Tensor | None, list[Wanted]]] = []
    for wish in wishes:
        for number, (among, group) in enumerate(groups):
            if among is None or wish.among is None or among is wish.among:
                group.append(wish)
                groups[number] = (wish.among if among is None else among, group)
                break
        else:
            groups.append((wish.among, [wish]))
    return [group for _, group in groups]


def _distinct(tensors: Sequence[Tensor | None]) -> list[Tensor]:
    return list({id(tensor): tensor for tensor in tensors if tensor is not None}.values())


def _side_by_side(features: Sequence[Tensor]) -> Tensor | None:
    if len(features) < 2:
        return features[0] if features else None
    wide = max((per_head(each) for each in features), key=lambda each: each.shape[1])
    dtype = max((each.dtype for each in features), key=lambda each: each.itemsize)
    parts = [per_head(each).to(dtype) for each in features]
    return torch.cat([each.expand(*wide.shape[:3], each.shape[-1]) for each in parts], -1)


def _stacked(received: Sequence[Tensor]) -> Tensor | None:
    if len(received) < 2:
        return received[0] if received else None
    return torch.stack([queries.to(torch.float32) for queries in received], -1)


def _in_turn(watchers: Sequence[Watcher]) -> Watcher | None:
    if len(watchers) < 2:
        return watchers[0] if watchers else None

    def each(weights: Tensor, texts: slice, rows: slice) -> None:
        for watch in watchers:
            watch(weights, texts, rows)

    return each
