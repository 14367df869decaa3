"""Edmonds' algorithm on many graphs at once: contract every cycle of best edges, solve the smaller graphs, expand."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

ROOT = -1
_UNSET = -2
_LAST = torch.iinfo(torch.int32).max


@dataclass(frozen=True)
class _Level:
    """Graphs in which cycles were contracted: their numbers, and what the expansion needs of them."""

    graphs: Int[Tensor, " graph"]
    on_cycle: Bool[Tensor, "graph node"]
    edge: Int[Tensor, "graph node"]  # the best edge into each node, as dependent · words + governor
    node: Int[Tensor, "graph word"]  # the node that contains each word


def arborescences(scores: Float[Tensor, "graph word word2"]) -> Int[Tensor, "graph word"]:
    """The head of each word in the spanning tree of largest sum that is rooted in word 0, whose head is −1.

        argmax over trees of Σ_d scores[d, head(d)]           −inf: no such edge

    All graphs must have such a tree. Of equal edges the first is taken, so that a graph's tree does not depend on the
    others. Chu & Liu 1965; Edmonds 1967, "Optimum Branchings".
    """
    graphs, words = scores.shape[:2]
    heads = torch.full((graphs, words + 1), _UNSET)  # the last column takes what is not to be written
    weight, number = scores.clone(), torch.arange(graphs)
    weight[:, 0] = -torch.inf
    code = torch.arange(words * words, dtype=torch.int32).view(1, words, words).expand(graphs, -1, -1)
    node = torch.arange(words).expand(graphs, -1)
    levels = []
    while len(number):
        best, source = weight.max(-1)
        source = source.masked_fill(best == -torch.inf, 0)  # the root, and nodes that a graph does not have
        edge = code.gather(-1, source[..., None])[..., 0].long()
        on_cycle, lowest = _cycles(source)
        cyclic = on_cycle.any(-1)
        _write(heads, number[~cyclic], edge[~cyclic], best[~cyclic] > -torch.inf)
        if not cyclic.all():
            weight, code, node, number, best, edge, on_cycle, lowest = (
                part[cyclic] for part in (weight, code, node, number, best, edge, on_cycle, lowest)
            )
        levels.append(_Level(number, on_cycle, edge, node))
        weight -= best.masked_fill(~on_cycle, 0.0)[..., None]
        weight, code, up = _contracted(weight, code, lowest, best > -torch.inf)
        node = up.gather(-1, node)
    for level in reversed(levels):
        written = heads[level.graphs, :words] != _UNSET
        entered = torch.zeros_like(level.on_cycle).scatter_reduce(-1, level.node, written, "amax")
        _write(heads, level.graphs, level.edge, level.on_cycle & ~entered)
    heads[:, 0] = ROOT
    return heads[:, :words]


def _cycles(source: Int[Tensor, "graph node"]) -> tuple[Bool[Tensor, "graph node"], Int[Tensor, "graph node"]]:
    """Which nodes are on a cycle of edges that does not hold the root, and the lowest node of the cycle (else itself).

    Steps double: after k rounds `jump` is 2ᵏ edges long.
    """
    itself = torch.arange(source.shape[-1]).expand_as(source)
    jump, lowest = source, itself
    for _ in range(source.shape[-1].bit_length()):
        lowest = torch.minimum(lowest, lowest.gather(-1, jump))
        jump = jump.gather(-1, jump)
    on_cycle = torch.zeros_like(source, dtype=torch.bool).scatter(-1, jump, True)
    on_cycle[:, 0] = False
    return on_cycle, torch.where(on_cycle, lowest, itself)


def _contracted(
    weight: Float[Tensor, "graph node node2"],
    code: Int[Tensor, "graph node node2"],
    lowest: Int[Tensor, "graph node"],
    real: Bool[Tensor, "graph node"],
) -> tuple[Float[Tensor, "graph new new2"], Int[Tensor, "graph new new2"], Int[Tensor, "graph node"]]:
    """Each cycle as one node, the best edge between two nodes with its code, and the new number of each old node."""
    stays = (lowest == torch.arange(lowest.shape[-1])) & real
    stays[:, 0] = True
    rank = stays.cumsum(-1) - 1
    up = rank.gather(-1, lowest).masked_fill(~real, 0)
    size = int(rank.max()) + 1 if rank.numel() else 1
    weight = weight.masked_fill_(up[:, :, None] == up[:, None, :], -torch.inf).flatten(1)
    place = (up[:, :, None] * size + up[:, None, :]).flatten(1)
    best = weight.new_full((len(weight), size * size), -torch.inf).scatter_reduce_(-1, place, weight, "amax")
    # Of equal edges the one with the lowest code; those between nodes without an edge are never looked at.
    codes = code.flatten(1).masked_fill(weight < best.gather(-1, place), _LAST)
    codes = code.new_full(best.shape, _LAST).scatter_reduce_(-1, place, codes, "amin")
    shape = (len(weight), size, size)
    return best.view(shape), codes.view(shape), up


def _write(
    heads: Int[Tensor, "all column"],
    graphs: Int[Tensor, " graph"],
    edge: Int[Tensor, "graph node"],
    wanted: Bool[Tensor, "graph node"],
) -> None:
    """heads[dependent] = governor of the wanted edges."""
    words = heads.shape[-1] - 1
    dependent = (edge // words).masked_fill(~wanted, words)
    heads[graphs] = heads[graphs].scatter(-1, dependent, edge % words)
