"""What `lorgnette prune` is told."""

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Final

from lorgnette.constraints import Interval, NotEmpty, OneOf, Seed
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
KINDS: Final = ("heads", "units", "layers")
"""What can go."""
FORMATS: Final = ("pruned", "stock")
_BUDGET, _HEADS = "How small", "What goes"
_BYTES: Final = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True)
class PruningSettings(TrainingSettings):
    """What goes, and how the rest learns to do without it; the other settings are those of training.

    keep        the share to keep of the parameters of all layers; embeddings and the output head stay and are not
                counted (`size` counts them). With only=("heads",) it is a share of the heads
    size, speed instead of a share: the weights take at most so much ("60MB"), or a batch is so many times as fast on
                this machine
    weight      instead of a budget: λ, with which training finds how many heads stay; nothing else goes
    sweep       instead of `keep` several shares: each is a run in a folder of its own, with one table and figure
    seeds       instead of `seed` several: each is a run in a folder of its own, with one table and figure
    only        the kinds that may go; None: all with a budget, heads without one
    uniform     equal sizes in all layers: an ordinary checkpoint, which transformers opens, is then as small
    method      "gates" (learnt, Voita et al. 2019), "importance" (how much the loss depends on each head or unit,
                |∂L/∂ξ|, Michel et al. 2019; for layers, the loss without them) or, for heads, "agreement" (the mean
                rank over several signals)
    distil      weight of the distance to the whole model's logits and states (Hinton et al. 2015) while training
    train       which weights learn, beside the gates and afterwards: all, only those of the stacks that are pruned
                (gated), or none
    controls    random choices of the same budget (of heads: of as many in each layer) measured beside the choice
    scratch     train a model of the same shape from random weights as long, for comparison
    train_random    train what the first of the random choices leaves as long, with the same distillation
    patience    the fine-tuning stops after so many evaluations without improvement on the validation texts; there are
                two in an epoch unless `evaluate_every` says otherwise
    format      "pruned" (a smaller checkpoint, which opens with Lorgnette) or "stock" (an ordinary one, with equal
                sizes in all layers and zeros for the heads that went: plain transformers opens it)
    settle      epochs of training after the parts are gone, at most (see `patience`); None: 3 with a budget, 1 with a
                share of the heads, 0 with λ (the weights have learnt without them already)
    """

    model: Annotated[str, Shown("", "A trained classifier, translation or language model: a folder, or a hub name.")]
    out: Annotated[Path | str, Shown(RUN, "The folder for the pruned model.", names=("--out", "-o"))]
    _: KW_ONLY
    keep: Annotated[
        Annotated[float, Interval(0, 1, "right")] | None,
        Shown(
            _BUDGET,
            "Fraction to keep of the parameters of the layers (embeddings stay); with --only heads, of the heads.",
            metavar="SHARE",
        ),
    ] = None
    size: Annotated[
        str | None, Shown(_BUDGET, "Instead of --keep: largest size of the weights, such as 60MB.", metavar="SIZE")
    ] = None
    speed: Annotated[
        Annotated[float, Interval(1, closed="neither")] | None,
        Shown(_BUDGET, "Instead of --keep: how many times as fast, measured on this machine.", metavar="TIMES"),
    ] = None
    sweep: Annotated[
        Annotated[Sequence[Annotated[float, Interval(0, 1, "right")]], NotEmpty()] | None,
        Shown(_BUDGET, "Instead of --keep: several shares, comma-separated, each in a folder of its own.",
              metavar="SHARES"),
    ] = None  # fmt: skip
    seeds: Annotated[
        Annotated[Sequence[Seed], NotEmpty()] | None,
        Shown(RUN, "Several seeds, comma-separated, each in a folder of its own."),
    ] = None
    only: Annotated[
        Annotated[Sequence[Annotated[str, OneOf(KINDS)]], NotEmpty()] | None,
        Shown(_HEADS, "What may go, comma-separated: heads, units (feed-forward), layers.", default="all"),
    ] = None
    uniform: Annotated[
        bool,
        Shown(_BUDGET, "Equal sizes in all layers, saved as an ordinary checkpoint (heads stay in most families)."),
    ] = False
    method: Annotated[
        Annotated[str, OneOf(("gates", "importance", "agreement"))],
        Shown(_HEADS, "gates (learnt), importance (|∂loss/∂gate|) or agreement (of heads: mean rank of all signals)."),
    ] = "gates"
    weight: Annotated[
        NotNegative | None,
        Shown(
            _BUDGET,
            "Instead of a budget: weight λ of the penalty on open gates of heads.",
            names=("--lambda",),
            metavar="λ",
            default="0.1 without a budget",
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
        int, Interval(0), Shown(_HEADS, "Number of random choices (same budget; heads: same number per layer).")
    ] = 5
    scratch: Annotated[bool, Shown(RUN, "Also train a model of that shape from random weights.")] = False
    train_random: Annotated[bool, Shown(RUN, "Also train one of the random choices as long.")] = False
    allow_empty: Annotated[bool, Shown(_HEADS, "Allow layers that lose all their heads or units.")] = False
    distil: Annotated[NotNegative, Shown(RUN, "Weight of the distance to the whole model's logits and states.")] = 1.0
    epochs: Annotated[Count, Shown(RUN, "Epochs of training with gates.")] = 3
    settle: Annotated[
        Annotated[int, Interval(0)] | None,
        Shown(RUN, "Epochs of fine-tuning after removal, at most.", default="3 with a budget, heads 1"),
    ] = None
    patience: Annotated[
        Count, Shown(RUN, "Stop the fine-tuning after this many evaluations without a smaller validation loss.")
    ] = 2
    evaluate_every: Annotated[
        Count | None, Shown(RUN, "Steps between evaluations (and checkpoints).", default="half an epoch")
    ] = None
    learning_rate: Annotated[Positive | None, Shown(RUN, "Learning rate of the model weights.", default="5e-5")] = None
    batch_size: Annotated[int, Interval(1, 1 << 20), Shown(RUN, "Texts per batch.")] = 32
    onnx: Annotated[bool, Shown(RUN, "Also write model.onnx.", names=("--onnx/--no-onnx",))] = True
    format: Annotated[
        Annotated[str, OneOf(FORMATS)],
        Shown(RUN, "pruned (smaller) or stock (an ordinary checkpoint with zeros; opens in plain transformers)."),
    ] = "pruned"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seeds is not None:
            self._refuse_seeds(self.seeds)
        if self.sweep is not None:
            self._refuse_sweep(self.sweep)
            return
        budgets = [name for name in ("keep", "size", "speed") if getattr(self, name) is not None]
        if budgets and self.weight is not None:
            raise UserError(f"`{budgets[0]}` sets how much remains, `weight` lets training decide: use one of them.")
        if self.keep == 1:
            raise UserError("`keep` 1 keeps everything, so nothing would go: give a smaller share.")
        if len(budgets) > 1:
            raise UserError(f"`{budgets[0]}` and `{budgets[1]}` are two budgets: use one of them.")
        if self.method != "gates" and not budgets:
            raise UserError(f"The method {self.method!r} ranks heads: set how many to keep with `keep`, such as 0.3.")
        if self.size is not None:
            size_of(self.size)
        self._refuse_kinds(bool(budgets))
        if self.settle and self.train == "none":
            raise UserError("If no weights are trained (`train`), nothing is left to fine-tune: omit `settle`.")
        self._refuse_idle()

    def _refuse_sweep(self, shares: Sequence[float]) -> None:
        """Refuse settings that are wrong for any of the runs."""
        other = next((name for name in ("keep", "size", "speed", "weight") if getattr(self, name) is not None), None)
        if other is not None:
            raise UserError(f"`sweep` and `{other}` both say how small the model is to become: use one of them.")
        if len(set(shares)) < len(shares):
            raise UserError("`sweep` has the same share twice.")
        for share in shares:
            dataclasses.replace(self, sweep=None, keep=share)

    def _refuse_seeds(self, seeds: Sequence[int]) -> None:
        if self.seed != 0:
            raise UserError("Set `seed` or `seeds`, not both.")
        if len(set(seeds)) < len(seeds):
            raise UserError("`seeds` has the same seed twice.")

    @property
    def runs(self) -> "list[PruningSettings]":
        """The settings of each run, every seed of a share before the next share."""
        out = []
        for share in self.sweep or (self.keep,):
            folder = self.folder if self.sweep is None else self.folder / f"keep-{share:g}"
            for seed in self.seeds or (self.seed,):
                own = folder / f"seed-{seed}" if len(self.seeds or ()) > 1 else folder
                out.append(dataclasses.replace(self, sweep=None, seeds=None, keep=share, seed=seed, out=own))
        return out

    def _refuse_kinds(self, budget: bool) -> None:
        """Kinds of parts and ways to choose them that do not fit together."""
        if not budget and self.only is not None and tuple(self.only) != ("heads",):
            raise UserError("Without a budget only heads go: set `keep`, `size` or `speed`, or omit `only`.")
        if self.method == "agreement" and not self.counts_heads:
            raise UserError("The method 'agreement' ranks heads: set `only` to heads and `keep` to a share of them.")
        if self.uniform and (self.counts_heads or (self.only is not None and tuple(self.only) == ("heads",))):
            raise UserError("`uniform` makes layers equal in units, but only heads are to go: omit `only`.")

    def _refuse_idle(self) -> None:
        """Refuse options that would change nothing."""
        if self.budget and self.rule != "code":
            raise UserError("`rule` decides which gates are closed, a budget fixes how many are: use one of them.")
        if not self.counts_heads and self.over != "mean":
            raise UserError("`over` is for a penalty on the number of heads: set `only` to heads, or omit it.")
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
    def budget(self) -> bool:
        """Whether the settings fix how much remains (a share, a size or a speed), rather than λ."""
        return self.keep is not None or self.size is not None or self.speed is not None

    @property
    def counts_heads(self) -> bool:
        """Whether the budget counts heads: with λ, and with a share of the heads alone."""
        alone = self.only is not None and tuple(self.only) == ("heads",)
        return not self.budget or (alone and self.keep is not None)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of part that may be removed."""
        return KINDS if self.only is None else tuple(self.only)

    @property
    def saved_as(self) -> str:
        """The format of the checkpoint."""
        return "stock" if self.uniform else self.format

    @property
    def settling(self) -> int:
        if self.settle is not None:
            return self.settle
        if not self.budget or self.train == "none":
            return 0
        return 1 if self.counts_heads else 3

    def record(self) -> Json:
        """The settings as plain values: what must be the same to go on with an interrupted run."""
        training = self.training.record()
        own = {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name not in training}
        for name in (
            *NOT_THE_RUN,
            "data",
            "controls",
            "onnx",
            "scratch",
            "train_random",
            "sweep",
            "seeds",
        ):  # options about the output may differ
            del own[name]
        own |= {name: None if (given := own[name]) is None else list(given) for name in ("stacks", "only")}
        return {**training, "pruning": own}


def size_of(said: str) -> int:
    """Bytes of a size such as 60MB."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?B)\s*", said, re.IGNORECASE)
    if found is None or float(found[1]) <= 0:
        raise UserError(f"`size` must be a number of KB, MB or GB, such as 60MB. Got {said!r} instead.")
    return round(float(found[1]) * _BYTES[found[2].upper()])
