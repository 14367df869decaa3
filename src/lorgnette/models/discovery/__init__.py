"""The anatomy of a model without a record, found by running it once on a small batch.

events → what happened in the pass: attention calls, linear maps and norms, in order
proofs → what the numbers of these events prove: W_Q, W_K, W_V, W_O, residual and norm
mixers → what mixes tokens beside attention
stacks → which calls belong to which stack, layer and kind
search → all of it: `discovered(model)`
"""

from lorgnette.models.discovery.search import discovered

__all__ = ["discovered"]
