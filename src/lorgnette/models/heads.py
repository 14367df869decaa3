"""What turns a model's last states into classes."""

from torch import nn

from lorgnette.types import PreTrainedModel

CLASSIFIERS = ("classifier", "score", "classification_head")
"""What transformers calls the module that turns a text's vector into classes, in every family."""


def classification_head(model: PreTrainedModel) -> nn.Module | None:
    """The module that turns a text's vector into classes, if the model has one of a known name."""
    return next((getattr(model, name) for name in CLASSIFIERS if hasattr(model, name)), None)
