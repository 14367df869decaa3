"""Training: our Trainer over a bare loop with the same maths, and what penalties cost per step."""

import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PrinterCallback, TrainerCallback

from benchmarks.harness import Figure, side_by_side
from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.models.classifier.presets import preset
from lorgnette.models.tapping import tapped
from lorgnette.texts import Corpus, Example
from lorgnette.training import EntropyPenalty, Splits, TrainingSettings, prepare
from lorgnette.training.arguments import arguments_of
from lorgnette.training.data import Collator
from lorgnette.training.folder import RunFolder
from lorgnette.training.trainer import PenalisedTrainer, Record, Tally

WORDS, WIDTH, LAYERS, BATCH = 5000, 100, 3, 32


def reviews(count: int, tokens: int) -> Corpus:
    """Texts of random words, `tokens` long with <cls>, of two classes in turn."""
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(WORDS, (count, tokens - 1), generator=draw).tolist()
    texts = [Example(str(k), " ".join(f"w{i}" for i in row), label=k % 2) for k, row in enumerate(ids)]
    return Corpus.of(texts, labels=("no", "yes"))


class Bare(nn.Module):
    """The maths of tp9-cls with nothing around it: three times x ← ReLU(W softmax(q kᵀ/√d) v), then the first row."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, WIDTH)
        self.words.weight.requires_grad_(False)
        self.cls = nn.Parameter(torch.randn(WIDTH) * 0.02)
        self.maps = nn.ModuleList(nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4)) for _ in range(LAYERS))
        self.classifier = nn.Linear(WIDTH, 2)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.words(ids)
        x = torch.cat((self.cls.expand(len(x), 1, -1), x[:, 1:]), dim=1)
        for query, key, value, transform in self.maps:  # type: ignore[misc]
            q, k, v = (part(x)[:, None] for part in (query, key, value))
            x = transform(F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])[:, 0]).relu()
        return self.classifier(x[:, 0])


def trainer_over_bare_loop() -> Iterator[Figure]:
    """Tokens per second of an epoch of tp9-cls, three layers, through our Trainer, over a bare PyTorch loop."""
    tokens, steps = 256, 8
    corpus = reviews(BATCH * steps, tokens)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingSettings(
            model="tp9-cls",
            corpus=Splits(corpus, corpus.take(4)),
            out=Path(folder, "run"),
            embeddings="random",
            freeze=True,
            batch_size=BATCH,
            epochs=1,
        )
        ready = prepare(settings)
        clock = Clock()
        trainer = _trainer(settings, ready, clock)
        batches = _batches(ready)
        bare = Bare(len(ready.builder.tokenizer))
        optimizer = torch.optim.Adam((p for p in bare.parameters() if p.requires_grad), lr=1e-3, fused=True)

        def loop() -> None:
            for batch in batches:
                loss = F.cross_entropy(bare(batch["input_ids"], batch["attention_mask"].bool()), batch["labels"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

        # From the end of the first step to the end of the last, so that what is done once per run does not count.
        ours, theirs = [], []
        for _ in range(8):
            trainer.train()
            ours.append(clock.seconds / (steps - 1))
            start = time.perf_counter()
            loop()
            theirs.append((time.perf_counter() - start) / steps)
        ratios = [bare_step / step for step, bare_step in zip(ours[1:], theirs[1:], strict=True)]  # the first warms up
        low, value, high = statistics.quantiles(ratios, n=4)
        speed = round(BATCH * tokens / statistics.median(ours))
        details = {"middle_half": [round(low, 4), round(high, 4)], "tokens_per_second": speed, "n": tokens}
        yield Figure("trainer_over_bare_loop", value, 0.85, higher=True, details=details)


class Clock(TrainerCallback):
    """Seconds between the end of the first step and the end of the last."""

    def on_step_end(self, args, state, control, **_) -> None:  # type: ignore[no-untyped-def]
        if state.global_step == 1:
            self.start = time.perf_counter()
        self.seconds = time.perf_counter() - self.start


def _trainer(settings: TrainingSettings, ready, clock: Clock) -> PenalisedTrainer:  # type: ignore[no-untyped-def]
    """As in a run, but for evaluation and checkpoints, which a bare loop does not have either."""
    tally = Tally()
    arguments = dataclasses.replace(
        arguments_of(settings, RunFolder(settings.folder)),
        eval_strategy="no",
        save_strategy="no",
        load_best_model_at_end=False,
    )
    trainer = PenalisedTrainer(
        model=ready.builder.model(),
        args=arguments,
        train_dataset=ready.bucketed(settings),
        data_collator=Collator(ready.builder.tokenizer.pad_token_id),
        callbacks=[Record(tally), clock],
        tally=tally,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _batches(ready) -> list[dict[str, Tensor]]:  # type: ignore[no-untyped-def]
    items = ready.train.items
    return [Collator(0)(items[start : start + BATCH]) for start in range(0, len(items), BATCH)]


def entropy_penalty() -> Iterator[Figure]:
    """A training step with the entropy penalty over one without: the row of <cls>, and all rows."""
    for rows, tokens, bound in (("cls", 256, 1.10), ("cls", 512, 1.10), ("all", 512, 1.8)):
        model = SelfAttentionClassifier(preset("tp9-cls", layers=LAYERS, vocab_size=WORDS))
        step = _step(model, tokens)
        penalty = EntropyPenalty(0.01, rows)
        ratio = side_by_side(step, lambda step=step, penalty=penalty: step(penalty), seconds=40)  # type: ignore[misc]
        yield Figure(f"entropy_penalty_{rows}_n{tokens}", ratio.value, bound, details=ratio.details(batch=BATCH))


def _step(model: nn.Module, tokens: int) -> Callable[..., None]:
    """One step on a batch whose texts differ a little in length."""
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(3, WORDS, (BATCH, tokens), generator=draw)
    ids[:, 0] = 2
    mask = torch.arange(tokens) < torch.randint(tokens * 7 // 8, tokens + 1, (BATCH, 1), generator=draw)
    given = {"input_ids": ids.masked_fill(~mask, 0), "attention_mask": mask.long(), "labels": ids[:, 1] % 2}
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=1e-3, fused=True)

    def step(penalty: EntropyPenalty | None = None) -> None:
        if penalty is not None:
            penalty.begin(mask, {})
        with tapped(model, penalty) if penalty is not None else nullcontext():
            loss = model(**given).loss
        if penalty is not None:
            loss = loss + penalty.weight * penalty.value
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


BENCHES = {"trainer_over_bare_loop": trainer_over_bare_loop, "entropy_penalty": entropy_penalty}
