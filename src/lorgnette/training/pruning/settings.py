"""What `lorgnette prune` is told."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Final

from lorgnette.errors import UserError, near
from lorgnette.training.gates.gates import STACKS, TRAINS, VOITA, check_options, check_rule
from lorgnette.training.settings import TrainingSettings
from lorgnette.types import Json

METHODS: Final = ("gates", "importance", "agreement")
FORMATS: Final = ("pruned", "stock")
WEIGHT: Final = 0.1
"""λ where neither a share nor a weight is given: the coefficient of Voita's code."""
EPOCHS: Final = 3
LEARNING_RATE: Final = 5e-5
PRESSURE: Final = 0.5
"""λ on the heads that are open beyond a given share."""


@dataclass(frozen=True, kw_only=True)
class HeadChoice:
    """How heads are chosen, and how the rest learns to do without them.

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

    method: str = "gates"
    keep: float | None = None
    weight: float | None = None
    stacks: tuple[str, ...] | None = None
    temperature: float = VOITA
    over: str = "mean"
    rule: str = "code"
    train: str = "all"
    gates_learning_rate: float | None = None
    settle: int | None = None
    controls: int = 5
    allow_empty: bool = False
    onnx: bool = True
    format: str = "pruned"


@dataclass(frozen=True, kw_only=True)
class PruningSettings(HeadChoice):
    """What one pruning is told: the choice of heads, and `training`: the model, the corpus, the folder, epochs …"""

    training: TrainingSettings

    def __post_init__(self) -> None:
        training = self.training
        changes: dict[str, float] = {} if training.epochs is not None else {"epochs": EPOCHS}
        if training.learning_rate is None:  # heads that go take more than fine-tuning does
            changes |= {"learning_rate": LEARNING_RATE, "warmup": training.warmup or 0.0}
        object.__setattr__(self, "training", training.replace(**changes))
        if self.method not in METHODS:
            raise UserError(
                f"the method must be one of {', '.join(METHODS)}; got {self.method!r}.{near(self.method, METHODS)}"
            )
        if self.format not in FORMATS:
            raise UserError(
                f"--format must be one of {', '.join(FORMATS)}; got {self.format!r}.{near(self.format, FORMATS)}"
            )
        if self.keep is not None and not 0 < self.keep <= 1:
            raise UserError(
                f"--keep is the share of the heads to keep, above 0 and at most 1 (a third: 0.33); got {self.keep}."
            )
        if self.keep is not None and self.weight is not None:
            raise UserError("--keep sets how many heads remain, --lambda lets training decide: use one of them.")
        if self.method != "gates" and self.keep is None:
            raise UserError(f"the method {self.method!r} ranks heads: set how many to keep with --keep, such as 0.3.")
        if self.weight is not None and not 0 <= self.weight < math.inf:
            raise UserError(f"--lambda is added to the loss times the open heads: 0 or more; got {self.weight}.")
        if self.train not in TRAINS:
            raise UserError(f"train must be one of {', '.join(TRAINS)}; got {self.train!r}.{near(self.train, TRAINS)}")
        wrong = [name for name in self.stacks or () if name not in STACKS]
        if wrong:
            raise UserError(f"stacks are some of {', '.join(STACKS)}; got {wrong[0]!r}.{near(wrong[0], STACKS)}")
        if self.settle is not None and self.settle < 0:
            raise UserError(f"settle is a number of epochs, 0 or more; got {self.settle}.")
        if self.settle and self.train == "none":
            raise UserError("--train none leaves nothing to fine-tune: omit --settle.")
        if self.controls < 0:
            raise UserError(f"controls is a number of random sets, 0 or more; got {self.controls}.")
        check_options(self.pressure, 0, self.over, self.temperature)
        check_rule(self.rule)
        if self.gates_learning_rate is not None and not 0 < self.gates_learning_rate < math.inf:
            raise UserError(f"the learning rate of the gates must be above 0; got {self.gates_learning_rate}.")
        self._refuse_idle()

    def _refuse_idle(self) -> None:
        """What was asked for and would change nothing."""
        if self.keep is not None and self.rule != "code":
            raise UserError("--rule decides which gates are closed, --keep fixes the number of heads: use one of them.")
        if self.method == "gates":
            return
        own = {"--temperature": self.temperature != VOITA, "--over": self.over != "mean"}
        own |= {"--gates-learning-rate": self.gates_learning_rate is not None}
        idle = [name for name, given in own.items() if given]
        if idle:
            raise UserError(f"{idle[0]} is for gates, but the method {self.method!r} has none: omit it.")

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
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in ("training", "controls", "allow_empty", "onnx"):  # what is done with the pruned model may change
            del own[name]
        own["stacks"] = None if self.stacks is None else list(self.stacks)
        return {**self.training.record(), "pruning": own}
