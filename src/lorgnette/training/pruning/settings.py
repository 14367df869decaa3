"""What `lorgnette prune` is told."""

import dataclasses
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Final

from lorgnette.constraints import Interval, OneOf
from lorgnette.errors import UserError
from lorgnette.training.settings import (
    NOT_THE_RUN,
    RUN,
    Count,
    NotNegative,
    Positive,
    Shown,
    TrainingSettings,
    base_fields,
)
from lorgnette.types import Json

WEIGHT: Final = 0.1
"""λ where neither a share nor a weight is given: the coefficient of Voita's code."""
LEARNING_RATE: Final = 5e-5
PRESSURE: Final = 0.5
"""λ on the heads that are open beyond a given share."""
VOITA: Final = 0.33
"""The temperature of gates in Voita et al. 2019."""
RULES: Final = ("code", "paper")
TRAINS: Final = ("all", "gated", "none")
STACKS: Final = ("encoder", "decoder", "cross")
_HEADS = "Which heads"


@dataclass(frozen=True)
class PruningSettings(TrainingSettings):
    """How heads are chosen, and how the rest learns to do without them; the other settings are those of training.

    method      "gates" (learnt, Voita et al. 2019), "importance" (how much the loss depends on each head, |∂L/∂ξ|,
                Michel et al. 2019) or "agreement" (the mean rank over several signals); the last two need `keep`
    keep        the share of the heads to keep; with gates, λ presses only while more are expected open, and in the
                end the heads with the largest log α stay
    weight      λ, instead of a share: how many heads stay is then what training finds
    train       which weights learn, beside the gates and afterwards: all, only those of the stacks that are pruned
                (gated), or none
    controls    random sets of as many heads in each layer that are measured beside the choice
    format      "pruned" (a smaller checkpoint, which opens with Lorgnette) or "stock" (the shape of the whole model,
                zeros for the heads that went: plain transformers opens it)
    settle      epochs of training after the heads are gone; None: 1 with `keep`, 0 with λ (gates at zero are heads
                that are gone: the weights have learnt without them already)
    """

    model: Annotated[str, Shown("", "A trained classifier or translation model: a folder, or a hub name.")]
    out: Annotated[Path | str, Shown(RUN, "The folder for the pruned model.", names=("--out", "-o"))]
    _: KW_ONLY
    method: Annotated[
        Annotated[str, OneOf(("gates", "importance", "agreement"))],
        Shown(_HEADS, "gates (learnt), importance (|∂loss/∂gate|) or agreement (mean rank of all signals)."),
    ] = "gates"
    keep: Annotated[
        Annotated[float, Interval(0, 1, "right")] | None,
        Shown(_HEADS, "Fraction of heads to keep.", metavar="SHARE"),
    ] = None
    weight: Annotated[
        NotNegative | None,
        Shown(
            _HEADS,
            "Instead of --keep: weight λ of the penalty on open gates.",
            names=("--lambda",),
            metavar="λ",
            default="0.1 without --keep",
        ),
    ] = None
    stacks: Annotated[
        Sequence[Annotated[str, OneOf(STACKS)]] | None,
        Shown(_HEADS, "Stacks to prune, comma-separated: encoder, decoder, cross.", default="all"),
    ] = None
    temperature: Annotated[
        float,
        Interval(0, 1, "right"),
        Shown(_HEADS, "Gate temperature: 0.33 (Voita et al.) or 0.667 (Louizos et al.)."),
    ] = VOITA
    over: Annotated[str, OneOf(("mean", "sum")), Shown(_HEADS, "Penalty: mean or sum over layers.")] = "mean"
    rule: Annotated[
        str, OneOf(RULES), Shown(_HEADS, "When a gate counts as closed: as in Voita's code, or as in the paper.")
    ] = "code"
    train: Annotated[
        str, OneOf(TRAINS), Shown(_HEADS, "Weights to train: all, gated (the stacks being pruned) or none.")
    ] = "all"
    gates_learning_rate: Annotated[
        Positive | None, Shown(_HEADS, "Learning rate of the gates.", default="from the number of steps")
    ] = None
    controls: Annotated[
        int, Interval(0), Shown(_HEADS, "Number of random head sets (same heads per layer) to compare with.")
    ] = 5
    allow_empty: Annotated[bool, Shown(_HEADS, "Allow layers that lose all their heads.")] = False
    epochs: Annotated[Count, Shown(RUN, "Epochs of training with gates.")] = 3
    settle: Annotated[
        Annotated[int, Interval(0)] | None,
        Shown(RUN, "Epochs of fine-tuning after removal.", default="1 with --keep"),
    ] = None
    learning_rate: Annotated[Positive | None, Shown(RUN, "Learning rate of the model weights.", default="5e-5")] = None
    batch_size: Annotated[int, Interval(1, 1 << 20), Shown(RUN, "Texts per batch.")] = 32
    onnx: Annotated[bool, Shown(RUN, "Also write model.onnx.", names=("--onnx/--no-onnx",))] = True
    format: Annotated[
        Annotated[str, OneOf(("pruned", "stock"))],
        Shown(RUN, "pruned (smaller) or stock (removed heads are zero; opens in plain transformers)."),
    ] = "pruned"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep is not None and self.weight is not None:
            raise UserError("`keep` sets how many heads remain, `weight` lets training decide: use one of them.")
        if self.method != "gates" and self.keep is None:
            raise UserError(f"The method {self.method!r} ranks heads: set how many to keep with `keep`, such as 0.3.")
        if self.settle and self.train == "none":
            raise UserError("If no weights are trained (`train`), nothing is left to fine-tune: omit `settle`.")
        self._refuse_idle()

    def _refuse_idle(self) -> None:
        """What was asked for and would change nothing."""
        if self.keep is not None and self.rule != "code":
            raise UserError("`rule` decides which gates are closed, `keep` fixes the number of heads: use one of them.")
        if self.method == "gates":
            return
        own = {"temperature": self.temperature != VOITA, "over": self.over != "mean"}
        own |= {"gates_learning_rate": self.gates_learning_rate is not None}
        idle = [name for name, given in own.items() if given]
        if idle:
            raise UserError(f"`{idle[0]}` is for gates, but the method {self.method!r} has none: omit it.")

    @property
    def training(self) -> TrainingSettings:
        """How the rest learns."""
        given = base_fields(self)
        if self.learning_rate is None:  # heads that go take more than fine-tuning does
            given |= {"learning_rate": LEARNING_RATE, "warmup": self.warmup or 0.0}
        return TrainingSettings(**given)

    @property
    def pressure(self) -> float:
        """λ."""
        if self.weight is not None:
            return self.weight
        return WEIGHT if self.keep is None else PRESSURE

    @property
    def settling(self) -> int:
        if self.settle is not None:
            return self.settle
        return 0 if self.keep is None or self.train == "none" else 1

    def record(self) -> Json:
        """The settings as plain values: what must be the same to go on with an interrupted run."""
        training = self.training.record()
        own = {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name not in training}
        for name in (*NOT_THE_RUN, "data", "controls", "allow_empty", "onnx"):  # what is done with it may change
            del own[name]
        own["stacks"] = None if self.stacks is None else list(self.stacks)
        return {**training, "pruning": own}
