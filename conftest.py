"""What every test shares: no network, few threads, no progress bars."""

import gc
import os
from pathlib import Path

# Before anything imports huggingface_hub or torch: they read these once. Two workers share two cores.
os.environ.update(
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    HF_HUB_DISABLE_PROGRESS_BARS="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    TRANSFORMERS_VERBOSITY="error",
    TOKENIZERS_PARALLELISM="false",
    OMP_NUM_THREADS="1",
    NO_COLOR="1",
    COLUMNS="120",
)
if not Path("/dev/nvidia0").exists():
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is first imported, which torch may do
os.environ.pop("LORGNETTE_DEBUG", None)
os.environ.pop("FORCE_COLOR", None)

from hypothesis import settings

# A slow shared machine is no bug; the same examples every time make a failure one can come back to.
settings.register_profile("lorgnette", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("lorgnette")


def pytest_collection_finish() -> None:
    """What was imported stays: every training ends with a collection, which would go through all of torch again."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()
