"""Where the real data sets are, for the tests that read them."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data sets: LORGNETTE_DATA, or a `shared/data` beside the repository or above it."""
    given = os.environ.get("LORGNETTE_DATA")
    repository = Path(__file__).resolve().parents[2]
    around = [folder / "shared" / "data" for folder in (repository, *repository.parents)]
    for folder in [Path(given)] if given else around:
        if folder.is_dir():
            return folder
    pytest.skip("no real data sets: set LORGNETTE_DATA to the folder that holds them")
