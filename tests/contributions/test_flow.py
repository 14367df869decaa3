"""Attention flow against minimum cuts by brute force and against networkx."""

from itertools import product

import networkx
import pytest
import torch

from lorgnette.contributions.flow import LONGEST, attention_flow
from lorgnette.contributions.rollout import half_residual, rolled_out
from lorgnette.errors import UserError


def mixing(layers, length, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(layers, 2, length, length, generator=generator, dtype=torch.float64)
    return half_residual(scores.softmax(-1))


def pipes(mixing, start):
    """(from, to) → width; "s" is the source, (l, i) token i below layer l."""
    layers, length, _ = mixing.shape
    out = {("s", (layers, i)): start[i].item() for i in range(length)}
    for layer, i, j in product(range(layers), range(length), range(length)):
        out[(layer + 1, i), (layer, j)] = mixing[layer, i, j].item()
    return out


def minimum_cut(edges, sink):
    """The smallest width between any set of nodes with the source and the rest with the sink."""
    nodes = sorted({node for edge in edges for node in edge if node not in ("s", sink)})
    best = float("inf")
    for chosen in product((False, True), repeat=len(nodes)):
        side = {"s"} | {node for node, there in zip(nodes, chosen, strict=True) if there}
        best = min(best, sum(width for (a, b), width in edges.items() if a in side and b not in side))
    return best


@pytest.mark.parametrize("start", [(1.0, 0.0, 0.0), (0.2, 0.5, 0.3)])
def test_it_is_the_minimum_cut(start):
    maps, start = mixing(2, 3), torch.tensor(start, dtype=torch.float64)
    cuts = torch.tensor([minimum_cut(pipes(maps, start), (0, token)) for token in range(3)], dtype=torch.float64)
    torch.testing.assert_close(attention_flow(maps, start), cuts / cuts.sum(), rtol=1e-8, atol=1e-8)


def test_it_is_that_of_networkx():
    maps, start = mixing(4, 9, seed=1), torch.eye(9, dtype=torch.float64)[0]
    graph = networkx.DiGraph()
    for (a, b), width in pipes(maps, start).items():
        graph.add_edge(a, b, capacity=width)
    flows = [networkx.maximum_flow_value(graph, "s", (0, token)) for token in range(9)]
    flows = torch.tensor(flows, dtype=torch.float64)
    torch.testing.assert_close(attention_flow(maps, start), flows / flows.sum(), rtol=1e-7, atol=1e-7)


def test_a_single_layer_is_its_row_and_a_path_is_as_wide_as_its_narrowest_pipe():
    maps, start = mixing(1, 5), torch.eye(5, dtype=torch.float64)[2]
    torch.testing.assert_close(attention_flow(maps, start), maps[0, 2], rtol=1e-8, atol=1e-8)
    path = torch.tensor([[[1.0, 0.0], [0.25, 0.75]], [[0.5, 0.5], [0.0, 1.0]]], dtype=torch.float64)
    flows = torch.tensor([0.5 + 0.25, 0.5], dtype=torch.float64)  # Σ_i min(M₂[0,i], M₁[i,j])
    torch.testing.assert_close(attention_flow(path, torch.tensor([1.0, 0.0]).double()), flows / flows.sum())
    torch.testing.assert_close(rolled_out(path)[-1, 0], torch.tensor([0.625, 0.375], dtype=torch.float64))


def test_long_texts_are_refused():
    with pytest.raises(UserError, match=f"at most {LONGEST} tokens"):
        attention_flow(torch.zeros(1, LONGEST + 1, LONGEST + 1), torch.zeros(LONGEST + 1))
