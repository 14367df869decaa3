"""One training with attention sharpened or not and the similarity of the values free or held; what comes of it."""

import time
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Call
from lorgnette.subject import Subject
from lorgnette.training import Penalty, Trained
from lorgnette.types import Json
from reproductions.fosse2023.attention.explained import explained
from reproductions.fosse2023.attention.geometry import centred_similarity, measured, passed, sim
from reproductions.fosse2023.attention.measure import fitted, settings_of
from reproductions.fosse2023.attention.replaced import replaced
from reproductions.fosse2023.attention.texts import Text, batches, groups, test_texts
from reproductions.frame.running import rounded
from reproductions.frame.settings import Machine


class SimilarityPenalty(Penalty):
    """(SIM − target)², SIM the mean cosine of all pairs of values of a text, averaged over the texts of a batch.

    SIM of a text may differ from the target; their mean may not. A constant added to all values (the bias of the
    projection) moves it too, and changes no weight of any token.
    """

    name = "similarity"
    looks_at_cls = False

    def __init__(self, weight: float, target: float) -> None:
        super().__init__(weight)
        self.target = target

    def record(self) -> Json:
        return {**super().record(), "target": self.target}

    def term(self, call: Call) -> Float[Tensor, ""]:
        assert self._mask is not None
        return (sim(call.value[:, 0], self._mask).nanmean() - self.target).square()


def trained(*, machine: Machine, target: float | None, hold: float, **told: Any) -> dict[str, Any]:
    """Trains one model and measures it as the reproduction of Fosse et al. 2023 does."""
    run, subject, texts = _fitted(machine, target, hold, told)
    started = time.monotonic()
    some = groups(told["corpus"], texts)["regularisation"]
    numbers = measured(subject, texts, {"published": some}, ranked=0)["published"]
    explanation = explained(subject, texts)
    attention = explanation["plausibility"]["attention"]["all"]
    changed = replaced(subject, texts, told["seed"])
    return rounded(
        {
            "accuracy": {"test": run.metrics["test"]["accuracy"], "train": run.curve[-1]["train"]["accuracy"]},
            "epochs": run.record["epochs"],
            "best": run.record["best"]["epoch"],
            "value": numbers["value"][0],
            "value_without_bias": without_bias(subject, texts),
            "key": numbers["key"][0],
            "entropy": numbers["entropy"][0],
            "auprc": attention["pooled"]["auprc"],
            "auroc": attention["pooled"]["auroc"],
            "marked": attention["marked"],
            "marked_texts": attention["texts"],
            "comprehensiveness": explanation["faithfulness"]["attention"]["comprehensiveness"],
            "flipped": {kind: changed[kind]["flipped"] for kind in ("uniform", "permuted")},
            "texts": run.record["texts"],
            "device": run.record["device"],
            "seconds": {"training": run.record["seconds"]["training"], "measuring": time.monotonic() - started},
        }
    )


def trained_for_gauge(*, machine: Machine, target: float | None, hold: float, **told: Any) -> dict[str, Any]:
    """Trains the same model, and measures SIM of its keys and values as they are and less their mean over the texts."""
    run, subject, texts = _fitted(machine, target, hold, told)
    numbers = centred_similarity(subject, texts, groups(told["corpus"], texts)["regularisation"])
    return rounded(
        {
            "accuracy": {"test": run.metrics["test"]["accuracy"]},
            "epochs": run.record["epochs"],
            **{name: values[0] for name, values in numbers.items()},
            "device": run.record["device"],
        }
    )


def _fitted(
    machine: Machine, target: float | None, hold: float, told: dict[str, Any]
) -> tuple[Trained, Subject, tuple[Text, ...]]:
    settings = settings_of(**told, data=machine.data, out=machine.scratch)
    if target is not None:
        settings = settings.replace(penalties=(*settings.penalties, SimilarityPenalty(hold, target)))
    run, subject, prepared = fitted(settings, machine)
    texts = test_texts(
        prepared, name=told["corpus"], data=machine.data, limit=told["test_limit"], max_length=told["max_length"]
    )
    return run, subject, texts


@torch.no_grad()
def without_bias(subject: Subject, texts: tuple[Text, ...]) -> float:
    """SIM of W_V x alone: what is left of it when the constant that all values share is taken away."""
    bias = subject.model.encoder.layers[0].attention.value.bias
    sims = [
        sim(passed(subject, batch).calls[0].value[:, 0] - bias, batch.mask) for batch in batches(texts, bias.device)
    ]
    return float(torch.cat(sims).nanmean())
