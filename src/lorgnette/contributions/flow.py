"""Attention flow: how much of each input could reach the read-out if attention weights were the widths of pipes."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.errors import UserError

RESOLUTION = 2**30
"""Capacities are rounded to multiples of 1/RESOLUTION: SciPy's maximum flow takes integers."""
LONGEST = 512
"""The longest text, in tokens: it takes n flows through layers × n² pipes each."""


def attention_flow(
    mixing: Float[Tensor, "layer token token"], start: Float[Tensor, " token"]
) -> Float[Tensor, " token"]:
    """The maximum flow from where the prediction is made to each input token, as shares of their sum.

    Node i above layer l has a pipe of width M_l,ij to node j below it (M = ½ mean_h α + ½ I, as in rollout); the source
    has pipes of width `start` to the nodes above the last layer. One flow for each token, by Dinic's algorithm. Widths
    are rounded to 2⁻³⁰: a flow is wrong by at most layers · n² / 2³¹ before the shares are taken.
    Abnar & Zuidema 2020, "Quantifying Attention Flow in Transformers", ACL, §3.

    What it does not tell you: how the pipes are used. Each token's flow has all of them to itself, so that tokens come
    out more alike than in a rollout.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    layers, length, _ = mixing.shape
    if length > LONGEST:
        raise UserError(
            f"attention_flow takes texts of at most {LONGEST} tokens: it solves one flow for each. Got {length} "
            "instead. Use rollout, or give a shorter text."
        )
    widths = np.rint(mixing.double().cpu().numpy() * RESOLUTION).astype(np.int32)
    layer, above, below = np.nonzero(widths)
    begin = np.rint(start.double().cpu().numpy() * RESOLUTION).astype(np.int32)
    first = np.nonzero(begin)[0]
    source = (layers + 1) * length  # node l·n + i is token i below layer l
    rows = np.concatenate([(layer + 1) * length + above, np.full_like(first, source)])
    columns = np.concatenate([layer * length + below, layers * length + first])
    values = np.concatenate([widths[layer, above, below], begin[first]])
    graph = csr_array((values, (rows.astype(np.int32), columns.astype(np.int32))), shape=(source + 1, source + 1))
    flows = [maximum_flow(graph, source, token, method="dinic").flow_value for token in range(length)]
    shares = torch.tensor(flows, dtype=torch.float64)
    return (shares / shares.sum().clamp(min=1)).to(mixing)
