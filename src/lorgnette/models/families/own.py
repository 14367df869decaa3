"""Our own self-attention classifier."""

from typing import Any

from torch import nn

from lorgnette.models.families.record import Cut, Family, FeedForwardLayout, Stack, separate


def _pooler_layers(pooler: Any) -> list[nn.Module]:
    """The pooler is a site if it attends, with its one query; mean and <cls> do not."""
    return [pooler] if hasattr(pooler, "attention") else []


def _norm_order(layer: nn.Module) -> str:
    """Where the norm of the attention sits, as the layer's class says."""
    return str(getattr(layer, "norm_order", "none"))


CLASSIFIER = Family(
    "lorgnette",
    ("lorgnette-classifier",),
    (
        Stack(
            "encoder",
            "encoder",
            "layers",
            (
                separate(
                    "attention",
                    "query key value",
                    "attention.output",
                    "norm",
                    order=_norm_order,
                    second_norm="transform.norm",
                ),
            ),
            feed_forward=FeedForwardLayout(("transform.expand",), "transform.contract", "feed_forward_width"),
            depth="layers",
        ),
        Stack(
            "pooler",
            "pooler",
            _pooler_layers,
            (separate("attention", "query key value", "attention.output", None, order="none", kind="cross"),),
            heads=1,
        ),
    ),
    heads=("heads", "num_attention_heads"),
    cut=Cut(("query", "key", "value"), "output", ("heads",), returns="state", bias="relative"),
)
