"""What each layer, and each head, would predict: the logit lens."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Site
from lorgnette.errors import CaptureError, UserError
from lorgnette.explaining.head_logits import HeadLogits, WrittenStates
from lorgnette.explaining.output_head import OutputHead, Predictions, ReadStates
from lorgnette.lens.base import Lens
from lorgnette.lens.logitlens.predictions import Predicted, divergence, midrank
from lorgnette.lens.losses import IGNORED, drawn, masked, right_tokens, task_of
from lorgnette.lens.moments import Moments
from lorgnette.lens.pairs import Pairs
from lorgnette.lens.places import Places
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.example import Example
from lorgnette.types import ModelOutput

OF_STATES = ("agreement", "settled", "rank", "reciprocal_rank", "loss", "divergence")
OF_CHANCE = ("chance", "excess")
OF_HEADS = ("head_agreement", "head_reciprocal_rank", "head_logit")
OF_OTHERS = ("head_excess", "head_contrast")
_WORD = "a"
_DESCRIPTIONS = {
    "agreement": "share of predictions whose top token at this state is the model's own",
    "settled": "share of predictions whose top token is the model's own at this state and at every later one",
    "rank": "rank of the correct token at this state (1: the largest logit)",
    "reciprocal_rank": "1 / rank of the correct token at this state",
    "loss": "cross-entropy of the correct token at this state, in nats",
    "divergence": "KL(final ‖ state) of the predicted distributions, in nats",
    "chance": "how often the top token at this state is the model's prediction at another position of the same text",
    "excess": "agreement minus chance",
    "depth": "first state from which on the top token is the model's own (0: the embeddings), mean over predictions",
    "head_agreement": "share of predictions whose top token by the head's logits alone is the model's own",
    "head_reciprocal_rank": "1 / rank of the correct token by the head's logits alone",
    "head_logit": "what the head adds to the logit of the correct token, minus its mean over the vocabulary",
    "head_excess": "head_agreement minus how often the head's top token is the prediction at another position",
    "head_contrast": "what the head adds to the logit of the correct token, minus what it adds to the correct tokens "
    "of the text's other positions",
}


class LogitLens(Lens):
    """What every layer, and every head, would predict if the model ended there (nostalgebraist 2020).

        row l     logits_l = head(x_l)          x_l the residual stream behind layer l (0: embeddings), head the model's
                                                own final norm and output head; the last row is the model's logits
        head h    J W_O^h z_h                   what it writes, through the residual stream and norms with the
                                                statistics of the whole pass (direct logit attribution)

    At every position that predicts a known token (causal: all but the last; translation: those of the reference;
    masked: 15 % of the tokens, which are masked): does the top token agree with the model's, what rank has the right
    token, KL(final ‖ row), and from which state on the top token stays the model's (`depth`, `settled`). Means over the
    predictions of a text, then over texts. The control is the same text: how often does a top token agree with the
    prediction at another position (`chance`)? `head_contrast` compares the correct token with those of the other
    positions in the same way, so that a token that a head always favours adds nothing.

    `positions`: heads are read at so many predictions of each text, drawn at random (0: at all), as every head takes a
    product with the whole vocabulary; `heads=False` leaves them out.

    What it does not tell you: what a layer knows. Early states need not be in the basis of the output, so a low
    agreement may be the head's and not the state's. A head whose logits favour nothing may be read by later heads.
    """

    task: str
    name: ClassVar[str] = "logitlens"
    summary: ClassVar[str] = "logit lens: what each layer and each head would predict, and where predictions settle"
    reads = frozenset({"cpu"})

    def __init__(self, heads: bool = True, positions: int = 8, seed: int = 0) -> None:
        super().__init__()
        if positions < 0 or positions == 1:
            raise UserError(
                "The 'positions' of LogitLens must be 2 or more, so that they can be compared, or 0 for all. "
                f"Got {positions!r} instead."
            )
        self.of_each_head, self.positions, self.seed = heads, positions, seed

    def allocate(self, subject: Subject) -> None:
        self.task = task_of(subject)
        if self.task == "classification":
            raise UserError(
                f"{subject.name!r} is a classifier: the logit lens reads predicted tokens. Give a language model or a "
                "translation model; for classes, use effects or probes."
            )
        head = OutputHead(subject)
        states = tuple(Site(head.stack.name, "self", row) for row in range(head.calls + 1))
        self.rows: Places = Places(states, layer=axes.STATE, first=0)
        self.of_states: Moments = Moments(self, OF_STATES, at=self.rows)
        self.of_chance: Moments = Moments(self, OF_CHANCE, at=self.rows)
        self.of_depth: Moments = Moments(self, "depth", at="corpus")
        if self.of_each_head:
            self.of_heads: Moments = Moments(self, OF_HEADS)
            self.of_others: Moments = Moments(self, OF_OTHERS)
            self.pairs: Pairs = Pairs(self.of_others, "head_contrast")
        self.sums("predictions", 1)
        if subject.has_tokenizer:
            self._refuse_inexact(head)

    def _refuse_inexact(self, head: OutputHead) -> None:
        """Refuse the model before the first batch: its last row, and with heads the sum of its parts."""
        subject = head.subject
        target = _WORD if subject.encoder.translates else None
        batch = subject.encode([Example("one word", _WORD, target=target)])
        head.check(batch)
        if self.of_each_head:
            try:
                WrittenStates(head, batch)
            except CaptureError as error:
                raise CaptureError(f"{error} Or read the layers alone (logitlens:heads=false).") from error

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """One pass of its own, whose states are read layer by layer; then one along the direct path for the heads."""
        labels = None
        if self.task == "masked":
            batch, labels = masked(self.subject, batch, seed=self.seed)
        right = right_tokens(self.subject, self.task, batch, labels).to(self.subject.device)
        head = OutputHead(self.subject)
        with torch.no_grad():
            read = head.read(batch)
            self._add_states(head, batch, read, right)
        self.predictions += (right != IGNORED).sum().to(self.predictions)
        if self.of_each_head:
            chosen = right != IGNORED
            if self.positions:
                chosen = drawn(chosen, batch, self.positions, self.seed)
            self._add_heads(WrittenStates(head, batch), Predictions.at(chosen), right)

    def _add_states(self, head: OutputHead, batch: Batch, read: ReadStates, right: Int[Tensor, "text token"]) -> None:
        places = Predictions.at(right != IGNORED)
        logits = read.outputs.logits
        predicted = _predicted(logits, right, places)
        parts = [
            torch.stack(list(_rows(head, batch, read, part, _predicted(logits, right, part), predicted)))
            for part in places.parts(logits.shape[-1])
        ]
        none = torch.zeros(len(read.states), 5, len(batch), 0, dtype=torch.float64, device=logits.device)
        same, chance, rank, loss, apart = torch.cat([none, *parts], -1).unbind(1)  # [state text place] each
        settled = same.flip(0).cumprod(0).flip(0)  # here and at all later states
        exists, several = (predicted.count > 0).double(), (predicted.count > 1).double()
        each = {"agreement": same, "settled": settled, "rank": rank, "reciprocal_rank": 1 / rank.clamp(min=1)}
        each |= {"loss": loss, "divergence": apart}
        means = {name: (predicted.mean(numbers), exists) for name, numbers in each.items()}
        against = {"chance": chance, "excess": same - chance}
        self.of_states.add_sites(self.rows.sites, **means)
        self.of_chance.add_sites(
            self.rows.sites, **{name: (predicted.mean(numbers), several) for name, numbers in against.items()}
        )
        self.of_depth.add(depth=(predicted.mean((1 - settled).sum(0)), exists))

    def _add_heads(self, written: WrittenStates, places: Predictions, right: Int[Tensor, "text token"]) -> None:
        logits = written.logits
        predicted = _predicted(logits, right, places)
        totals = {
            site: torch.zeros(5, len(right), written.path.heads[site].shape[1], dtype=torch.float64)
            for site in written.sites
        }
        for part in places.parts(logits.shape[-1]):
            found, here = HeadLogits(written, part), _predicted(logits, right, part)
            for site, total in totals.items():
                for head, alone in enumerate(found.heads(site)):
                    numbers = _of_head(alone, here, predicted)
                    total[:, :, head] += numbers.where(part.known, 0.0).sum(-1).cpu()
        exists, several = ((predicted.count > least).double()[:, None] for least in (0, 1))
        for site, total in totals.items():
            means = total.to(exists.device) / predicted.count.clamp(min=1)[:, None]
            self.of_heads.add(site, **{name: (means[row], exists) for row, name in enumerate(OF_HEADS)})
            self.of_others.add(site, **{name: (means[3 + row], several) for row, name in enumerate(OF_OTHERS)})

    def compute(self) -> Result:
        """Numbers of every state and every head, and the depth at which predictions settle."""
        variables = self._in_all_stacks(self.of_states.arrays() | self.of_chance.arrays()) | self.of_depth.arrays()
        if self.of_each_head:
            variables |= self.of_heads.arrays() | self.of_others.arrays() | self.pairs.q(size=True)
        variables["predictions"] = xr.DataArray(int(self.predictions.sum()))
        result = self.result(variables, descriptions=_DESCRIPTIONS)
        result.data.attrs |= {"task": self.task, "positions": self.positions}
        return result

    def _in_all_stacks(self, arrays: Mapping[str, xr.DataArray]) -> dict[str, xr.DataArray]:
        """Arrays of the stack that predicts, extended to all stacks; an encoder or cross-attention gets count 0."""
        stacks = self.by_head.stacks
        return {
            name: array.reindex({axes.STACK: stacks}, fill_value=0 if name.endswith("_count") else np.nan)
            for name, array in arrays.items()
        }


def _predicted(logits: Tensor, right: Int[Tensor, "text token"], places: Predictions) -> Predicted:
    return Predicted(places.of(logits.argmax(-1)), places.of(right).clamp(min=0), places.known)


def _rows(
    head: OutputHead, batch: Batch, read: ReadStates, part: Predictions, here: Predicted, all_of: Predicted
) -> Iterator[Float[Tensor, "number text place"]]:
    """State by state: agreement, chance, rank, loss and divergence at these places; one state's logits at a time."""
    final = part.of(read.outputs.logits)
    final_log = _wide(final).log_softmax(-1)
    for number, state in enumerate(read.states):
        logits = head.logits(batch, part.of(state))
        if number == head.calls:
            head.compare(logits[part.known], final[part.known])
            logits = final
        top = logits.argmax(-1)
        same = top == here.final
        logs = _wide(logits).log_softmax(-1)
        loss = -logs.gather(-1, here.right[..., None])[..., 0]
        rank = midrank(logits, here.right)
        numbers = same, all_of.chance(top, same), rank, loss, divergence(final_log, logs)
        yield torch.stack([each.double() for each in numbers])


def _of_head(
    logits: Float[Tensor, "text place vocabulary"], here: Predicted, all_of: Predicted
) -> Float[Tensor, "number text place"]:
    """OF_HEADS, then OF_OTHERS, of every prediction."""
    top = logits.argmax(-1)
    same = top == here.final
    right = logits.gather(-1, here.right[..., None])[..., 0].double()
    at_all = logits.gather(-1, all_of.right[:, None].expand(-1, logits.shape[1], -1))  # [text place other]
    centred = right - logits.double().mean(-1)
    excess = same.double() - all_of.chance(top, same)
    numbers = same.double(), 1 / midrank(logits, here.right), centred, excess, right - all_of.others(right, at_all)
    return torch.stack(numbers)


def _wide(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype.itemsize < 4 else logits
