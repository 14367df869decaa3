"""Which patches of a picture a prediction needs: hide them, and see how far its log-probability falls."""

import operator
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Tap
from lorgnette.constraints import Interval, NotEmpty, Seed, checked
from lorgnette.errors import UserError
from lorgnette.explaining import explain
from lorgnette.explaining.target import Next
from lorgnette.subject import Subject
from lorgnette.texts import as_examples, texts_of
from lorgnette.texts.batch import Batch
from lorgnette.texts.padding import last_positions
from lorgnette.texts.patches import IMAGE

Shares = Annotated[Sequence[Annotated[float, Interval(0, 1, "right")]], NotEmpty()]
Draws = Annotated[int, Interval(1, 100_000)]
SHARES = (0.1, 0.2, 0.3, 0.5, 0.8)
ORDER = "order"


class _Hidden(Tap):
    """Hides some tokens from all others, at every head of every layer of the language model; positions stay."""

    def __init__(self, subject: Subject, hidden: Bool[Tensor, "batch token"]) -> None:
        self.sites, self.hidden = set(subject.text_sites), hidden

    def scores(
        self, call: Call, scores: Float[Tensor, "batch head query key"]
    ) -> Float[Tensor, "batch head query key"]:
        if call.site not in self.sites:
            return scores
        itself = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
        return scores.masked_fill(self.hidden[:, None, None] & ~itself, -torch.inf)


@checked
def patch_falls(subject: Subject, batch: Batch) -> Float[Tensor, "batch token"]:
    """How far the log-probability of each text's most likely next token falls when one patch alone is hidden.

    log p(w) − log p(w | patch hidden), w the most likely token of the whole; one pass for each patch, 0 at other
    tokens.

    >>> lo.patch_falls(subject, batch).shape                               # doctest: +SKIP
    torch.Size([2, 20])

    What it does not tell you: what several patches say together; hide them together (`patch_deletion`).
    """
    image, whole, answer = _whole(subject, batch)
    falls = torch.zeros(image.shape, dtype=whole.dtype)
    for place in image.any(0).nonzero()[:, 0].tolist():
        hidden = torch.zeros_like(image)
        hidden[:, place] = image[:, place]
        falls[:, place] = whole - _log_probability(subject, batch, answer, hidden)
    return falls * image


@checked
def patch_deletion(
    subject: Subject,
    batch: Batch,
    scores: Float[Tensor, "batch token"],
    *,
    shares: Shares = SHARES,
    draws: Draws = 8,
    seed: Seed = 0,
) -> xr.Dataset:
    """The deletion test for patches: the fall when those with the highest scores are hidden, and that of random ones.

    `fall` [order share text]: log p(w) − log p(w | hidden) for `order` "scores" and "random" (the mean of `draws`), w
    the most likely next token of the whole text; `share` of the patches of each text are hidden, at least one. An
    explanation that finds the patches the model reads falls farther than chance (Samek et al. 2017, IEEE TNNLS 28,
    for pixels; here patches are hidden from attention, so nothing is put in their place).

    >>> lo.patch_deletion(subject, batch, lo.explain(subject, batch, "attnlrp", lo.Next()).tokens)  # doctest: +SKIP

    What it does not tell you: whether the patches that were left say the same without the others. The mean over a
    corpus, with its standard error, is that of `patch_test`.
    """
    if scores.shape != batch.source.mask.shape:
        raise UserError(f"scores must have the batch's shape {tuple(batch.source.mask.shape)}: one for each token.")
    if not bool(scores.isfinite().all()):
        raise UserError("scores must be numbers, so that they can be ranked. Got NaN or infinity among them.")
    shares, draws = [float(share) for share in shares], operator.index(draws)
    image, whole, answer = _whole(subject, batch)
    generator = torch.Generator().manual_seed(operator.index(seed))
    by_score = scores.detach().double().cpu()
    falls = np.zeros((2, len(shares), len(image)))
    for number, share in enumerate(shares):
        hidden = _top(by_score, image, share)
        falls[0, number] = (whole - _log_probability(subject, batch, answer, hidden)).cpu().numpy()
        for _ in range(draws):
            drawn = _top(torch.rand(image.shape, generator=generator, dtype=torch.double), image, share)
            falls[1, number] += (whole - _log_probability(subject, batch, answer, drawn)).cpu().numpy() / draws
    coordinates = {ORDER: ["scores", "random"], axes.SHARE: shares, axes.TEXT: [e.id for e in batch.examples]}
    return xr.Dataset({"fall": ((ORDER, axes.SHARE, axes.TEXT), falls)}, coordinates)


@checked
def patch_test(
    subject: Subject,
    corpus: object,
    method: str = "attnlrp",
    *,
    shares: Shares = SHARES,
    draws: Draws = 8,
    seed: Seed = 0,
) -> xr.Dataset:
    """The deletion test over a corpus of texts with pictures: does an explanation find the patches that are read?

    `fall` [order share]: the mean over texts of log p(w) − log p(w | hidden), for the patches that `method` gives the
    highest scores and for random ones (Samek et al. 2017, see `patch_deletion`). `gain` [share]: the mean of their
    difference, text by text. `fall_se`, `gain_se`: standard errors over texts; `fall_count`, `gain_count`: how many.

    >>> test = lo.patch_test(lo.load("./llava"), "questions.jsonl")        # doctest: +SKIP
    >>> test["gain"].sel(share=0.1), test["gain_se"].sel(share=0.1)        # doctest: +SKIP

    What it does not tell you: which patches; and a method may find what the model reads where this prediction does not
    depend on the picture at all, so that nothing falls.
    """
    shares, seed = [float(share) for share in shares], operator.index(seed)
    falls = []
    for number, example in enumerate(as_examples(texts_of(corpus))):
        if example.image is None:
            raise UserError(f"The text {example.id!r} has no picture: the test hides patches of one.")
        batch = subject.encode([example])
        scores = explain(subject, batch, method, Next()).tokens
        one = patch_deletion(subject, batch, scores, shares=shares, draws=draws, seed=seed + number)
        falls.append(one["fall"].values[..., 0])
    if len(falls) < 2:
        raise UserError(f"The test takes two texts or more, for a standard error. Got {len(falls)}.")
    fall = np.stack(falls)  # [text order share]
    both = {"fall": ((ORDER, axes.SHARE), fall), "gain": ((axes.SHARE,), fall[:, 0] - fall[:, 1])}
    made = {}
    for name, (dims, values) in both.items():
        made[name] = dims, values.mean(0)
        made[f"{name}_se"] = dims, values.std(0, ddof=1) / np.sqrt(len(values))
        made[f"{name}_count"] = dims, np.full(values.shape[1:], len(values))
    return xr.Dataset(made, {ORDER: ["scores", "random"], axes.SHARE: shares})


def _whole(subject: Subject, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Which tokens are patches, and the most likely next token of each text with its log-probability."""
    image = batch.source.categories.get(IMAGE)
    if image is None or not bool(image.any(-1).all()):
        raise UserError("Every text needs a picture: give lo.batch the config of the model (config=model.config).")
    logits = _next_logits(subject, batch)
    best = logits.log_softmax(-1).max(-1)
    return image, best.values, best.indices


def _log_probability(subject: Subject, batch: Batch, answer: Tensor, hidden: Tensor) -> Float[Tensor, " batch"]:
    with subject.tapped(_Hidden(subject, hidden.to(batch.source.mask.device))):
        logits = _next_logits(subject, batch)
    return logits.log_softmax(-1).gather(-1, answer[:, None])[:, 0]


def _next_logits(subject: Subject, batch: Batch) -> Float[Tensor, "batch vocabulary"]:
    with torch.no_grad():
        logits = getattr(subject.run(batch), "logits", None)
    if logits is None or logits.shape[:2] != batch.source.mask.shape:
        raise UserError(f"{subject.name!r} predicts no next token, which this test takes: give a model with its head.")
    return logits[torch.arange(len(logits)), last_positions(batch.source.mask)].double()


def _top(scores: Tensor, image: Tensor, share: float) -> Bool[Tensor, "batch token"]:
    """This share of the patches of each text, those with the highest scores, at least one."""
    hidden = torch.zeros_like(image, device="cpu")
    for row, (values, where) in enumerate(zip(scores, image.cpu(), strict=True)):
        places = where.nonzero()[:, 0]
        count = max(1, round(share * len(places)))
        hidden[row, places[values[places].argsort(descending=True, stable=True)[:count]]] = True
    return hidden
