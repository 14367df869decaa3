"""The `TrainingArguments` of a run."""

from typing import TYPE_CHECKING

import torch
from transformers import TrainingArguments

from lorgnette.errors import optional
from lorgnette.training.build import is_preset, translates
from lorgnette.training.folder import RunFolder
from lorgnette.training.settings import TrainingSettings
from lorgnette.types import Json

if TYPE_CHECKING:
    from accelerate import PartialState


EPOCHS = 20
"""The most epochs of presets and translators; early stopping ends most runs earlier."""


def arguments_of(settings: TrainingSettings, run: RunFolder) -> TrainingArguments:
    """The Trainer's arguments; settings that are None get the default of the kind of model."""
    here = torch.accelerator.is_available()
    when = "epoch" if settings.evaluate_every is None else "steps"
    steps = (
        {} if settings.evaluate_every is None else dict.fromkeys(("eval_steps", "save_steps"), settings.evaluate_every)
    )
    small = is_preset(settings)
    defaults = _defaults(settings)
    return TrainingArguments(
        output_dir=str(run.work),
        seed=settings.seed,
        num_train_epochs=settings.epochs or defaults["epochs"],
        learning_rate=settings.learning_rate or defaults["learning_rate"],
        lr_scheduler_type=settings.schedule or defaults["schedule"],
        warmup_steps=defaults["warmup"] if settings.warmup is None else settings.warmup,
        label_smoothing_factor=(
            defaults["label_smoothing"] if settings.label_smoothing is None else settings.label_smoothing
        ),
        adam_beta2=defaults["beta2"],
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.gradient_norm,
        optim="adamw_torch_fused",  # a tenth of the time where vectors of words are trained on a CPU
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=2 * settings.batch_size,
        gradient_accumulation_steps=settings.accumulate,
        eval_strategy=when,
        save_strategy=when,
        **steps,
        save_total_limit=None if settings.keep_checkpoints else 2,
        load_best_model_at_end=not settings.keep_last,
        metric_for_best_model=f"eval_{settings.select}",
        greater_is_better=settings.select in ("accuracy", "bleu"),
        restore_callback_states_from_checkpoint=True,
        logging_strategy="steps",
        logging_steps=50,
        logging_nan_inf_filter=False,  # a loss that is no number stops the run: see compute_loss
        report_to=["tensorboard"] if _has_tensorboard() else "none",
        disable_tqdm=True,
        log_level="error",
        bf16=settings.bf16,
        fp16=settings.fp16,
        use_cpu=not here,
        dataloader_pin_memory=here,
        remove_unused_columns=False,
        ddp_find_unused_parameters=False if small else None,  # presets use all they have
        # Batches differ in length, so each process reads its own rather than getting slices of a common one.
        accelerator_config={"dispatch_batches": False},
    )


def _defaults(settings: TrainingSettings) -> Json:
    """The defaults of each kind of model; those of translators are from Vaswani et al. 2017."""
    if not translates(settings):
        usual = {"label_smoothing": 0.0, "beta2": 0.999}
        if is_preset(settings):
            schedule = "constant_with_warmup" if settings.warmup else "constant"  # which has none
            return {"epochs": EPOCHS, "learning_rate": 1e-3, "schedule": schedule, "warmup": 0.0, **usual}
        # What Devlin et al. 2019 fine-tune with; the warm-up belongs to its step size.
        warmup = 0.1 if settings.learning_rate is None else 0
        return {"epochs": 3, "learning_rate": 2e-5, "schedule": "linear", "warmup": warmup, **usual}
    rate, schedule, warmup = (1e-3, "inverse_sqrt", 1000) if is_preset(settings) else (5e-5, "linear", 0)
    defaults = {"learning_rate": rate, "schedule": schedule, "warmup": warmup, "label_smoothing": 0.1, "beta2": 0.98}
    return {"epochs": EPOCHS, **defaults}


def _has_tensorboard() -> bool:
    from importlib.util import find_spec

    return find_spec("tensorboard") is not None or find_spec("tensorboardX") is not None


def processes() -> "PartialState":
    """The distributed state of a run. Without a GPU, accelerate assumes a single process unless `cpu=True` is set."""
    return optional("accelerate", "train").PartialState(cpu=not torch.accelerator.is_available())
