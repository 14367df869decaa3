"""Models: where the attention of each family lives; our own classifier and pruned models register on import."""

import lorgnette.models.classifier
import lorgnette.models.pruned.checkpoint  # noqa: F401  (for the Auto classes of transformers)
