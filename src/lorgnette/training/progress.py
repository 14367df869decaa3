"""How a run goes, on stderr: a bar in a terminal, else a line now and then and one per evaluation."""

import sys
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from lorgnette.progress import Lines, bars
from lorgnette.training.trainer import CURVE, Tally


class Progress(TrainerCallback):
    """Loss and accuracy of the training texts as they go, and of the validation texts when they were read."""

    EVERY = 10  # steps between two looks at the running sums, which wait for the device

    def __init__(self, title: str, tally: Tally) -> None:
        self.title, self.tally = title, tally
        self.bars: Any = None
        self.lines: Lines | None = None
        self.validation: str = ""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        if not state.is_world_process_zero:
            return
        from rich.console import Console

        console = Console(stderr=True)
        if not console.is_terminal:
            self.lines = Lines(self.title, state.max_steps, "steps", state.global_step)
            return
        self.bars = bars(console)
        self.bars.start()
        console.print(self.title, markup=False, highlight=False)
        self.task = self.bars.add_task("", total=state.max_steps, completed=state.global_step, said="")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        due = state.global_step % self.EVERY == 0 and bool(self.tally.count)
        if self.bars is not None:
            said = {"said": self.said()} if due else {}
            self.bars.update(self.task, completed=state.global_step, **said)
        elif self.lines is not None and due:
            self.lines.advance(state.global_step, self.said())

    def said(self) -> str:
        """The text beside the bar."""
        means = self.tally.means()
        return f"loss {means['loss']:.3f} accuracy {means['accuracy']:.3f}{self.validation}"

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
                flush=True,
            )

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self.bars is not None:
            self.bars.stop()
            self.bars = None
