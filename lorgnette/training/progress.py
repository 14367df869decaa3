"""How a run goes, on stderr: a bar in a terminal, else a line per evaluation."""

import sys
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from lorgnette.training.trainer import CURVE, Tally


class Progress(TrainerCallback):
    """Loss and accuracy of the training texts as they go, and of the validation texts when they were read."""

    EVERY = 10  # steps between two looks at the running sums, which wait for the device

    def __init__(self, title: str, tally: Tally) -> None:
        self.title, self.tally = title, tally
        self.bars: Any = None
        self.validation = ""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        if not state.is_world_process_zero:
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        if not console.is_terminal:
            return
        columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
        self.bars = Progress(*columns, TextColumn("{task.fields[said]}"), console=console)
        self.bars.start()
        self.task = self.bars.add_task(self.title, total=state.max_steps, completed=state.global_step, said="")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        if self.bars is None:
            return
        if state.global_step % self.EVERY == 0 and self.tally.count:
            means = self.tally.means()
            said = f"loss {means['loss']:.3f} accuracy {means['accuracy']:.3f}{self.validation}"
            self.bars.update(self.task, said=said)
        self.bars.update(self.task, completed=state.global_step)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        if not state.is_world_process_zero:
            return
        entry = state.log_history[-1].get(CURVE)
        if entry is None:
            return
        train, validation = entry["train"], entry["validation"]
        self.validation = f" · validation {validation['loss']:.3f} {validation['accuracy']:.3f}"
        if self.bars is None:
            print(
                f"{self.title}: epoch {state.epoch:.2f} of {state.num_train_epochs}, loss {train['loss']:.4f} accuracy "
                f"{train['accuracy']:.4f}, validation loss {validation['loss']:.4f} accuracy "
                f"{validation['accuracy']:.4f}, {entry['seconds']:.1f} s",
                file=sys.stderr,
            )

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self.bars is not None:
            self.bars.stop()
            self.bars = None
