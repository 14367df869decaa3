"""Our own small self-attention classifier, as an ordinary model of transformers."""

from lorgnette.models.classifier.model import *  # noqa: F403
