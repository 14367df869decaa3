"""What the cells of every training grid share: how a process is set, and which numbers of a run are kept."""

from typing import Any

from lorgnette.training import Trained

_DIGITS = 6


def ready_for_training() -> None:
    """One thread, no bars, and products of matrices in TF32 where there is a GPU that has it."""
    import torch
    import transformers

    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")


def numbers_of(run: Trained) -> dict[str, Any]:
    """The record of a run without what all runs share, its curve with rounded numbers."""
    record = run.record
    kept = ("metrics", "best", "epochs", "parameters", "seconds", "texts", "vocabulary", "notes", "device", "versions")
    numbers = {name: record[name] for name in (*kept, "corpus_fingerprint")}
    return {**numbers, "curve": rounded(record["curve"])}


def rounded(value: Any) -> Any:
    """Numbers with six decimals, wherever they are in lists and dictionaries."""
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value
