"""Models: where the attention of each family lives, and our own classifier, which registers itself on import."""

import lorgnette.models.classifier  # noqa: F401  (for the Auto classes of transformers)
