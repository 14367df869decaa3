"""Train a model and its gates together: what the Trainer has to do for parameters outside the model."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from lorgnette.training.gates.gates import HeadGates
from lorgnette.types import PreTrainedModel


class GatesLearn:
    """A mixin for Trainer classes that optimises, clips, saves and resumes gates together with the model.

    They form a parameter group of their own, with their own learning rate (log α must travel several units, weights
    must hardly move) and without decay, and are clipped by their own norm, so that λ does not change how far the
    weights may move. `loss` is left to the class that this is put before; tap the model with the gates around it.
    """

    def __init__(self, *args: object, gates: HeadGates, gates_learning_rate: float = 0.05, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.gates, self.gates_learning_rate = gates, gates_learning_rate
        gates.to(self.args.device)  # type: ignore[attr-defined]
        self.add_callback(_Steps(self))  # type: ignore[attr-defined]

    def create_optimizer(self, model: PreTrainedModel | None = None) -> Any:
        fresh = self.optimizer is None  # type: ignore[has-type]
        self.optimizer = super().create_optimizer(model)  # type: ignore[misc]
        if fresh:
            group = {"params": [self.gates.log_alpha], "lr": self.gates_learning_rate, "weight_decay": 0.0}
            self.optimizer.add_param_group(group)
        return self.optimizer

    def training_step(self, *args: object, **kwargs: object) -> Tensor:
        self.gates.train()
        return super().training_step(*args, **kwargs)  # type: ignore[misc]

    def evaluation_loop(self, *args: object, **kwargs: object) -> Any:
        self.gates.eval()
        return super().evaluation_loop(*args, **kwargs)  # type: ignore[misc]

    def _save(self, output_dir: str | None = None, state_dict: Mapping[str, Tensor] | None = None) -> None:
        super()._save(output_dir, state_dict)  # type: ignore[misc]
        self.gates.save(output_dir or self.args.output_dir)  # type: ignore[attr-defined]

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: PreTrainedModel | None = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
        self.gates.restore(resume_from_checkpoint)

    def _load_best_model(self) -> None:
        super()._load_best_model()  # type: ignore[misc]
        self.gates.restore(self.state.best_model_checkpoint)  # type: ignore[attr-defined]


class _Steps(TrainerCallback):
    """Averages the gates' gradients over processes and clips them before each optimizer step; then clears them."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        gradient = self.trainer.gates.log_alpha.grad
        if gradient is None:
            return
        if args.world_size > 1:  # DDP averages only the gradients of the model's parameters
            torch.distributed.all_reduce(gradient)
            gradient /= args.world_size
        if args.max_grad_norm:
            torch.nn.utils.clip_grad_norm_([self.trainer.gates.log_alpha], args.max_grad_norm)

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self.trainer.gates.advance()
        self.trainer.gates.zero_grad()  # the Trainer clears only the model's
