"""Pruning: how much of the possible saving a pruned encoder realises, and what gates cost in training."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import torch
from transformers import BertConfig, BertForSequenceClassification

from benchmarks.harness import Figure, side_by_side
from lorgnette.attending import Site
from lorgnette.models.tapping import tapped
from lorgnette.training.gates.gates import HeadGates
from lorgnette.training.pruning.removal import remove_heads
from lorgnette.training.pruning.speed import operations

BATCH, TOKENS = 4, 128


def base_shapes(layers: int = 12) -> BertForSequenceClassification:
    """BERT-base but for its vocabulary, which no head reads."""
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(vocab_size=1000, num_hidden_layers=layers)).eval()


def texts() -> dict[str, torch.Tensor]:
    ids = torch.randint(5, 1000, (BATCH, TOKENS), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def pruned_saving() -> Iterator[Figure]:
    """(t_full − t_pruned) / (t_full · saved share of operations), two thirds of the heads removed, n = 128."""
    whole, batch = base_shapes(), texts()
    small = remove_heads(whole, {Site("encoder", "self", layer): [0, 4, 7, 11] for layer in range(12)})
    saved = 1 - operations(small, batch) / operations(whole, batch)

    def full() -> None:
        with torch.inference_mode():
            whole(**batch)

    def pruned() -> None:
        with torch.inference_mode():
            small(**batch)

    ratio = side_by_side(full, pruned, seconds=60)
    details = ratio.details(saved_operations=round(saved, 4), heads="4 of 12", n=TOKENS)
    yield Figure("pruned_saving", (1 - ratio.value) / saved, 0.75, higher=True, details=details)


def gated_step() -> Iterator[Figure]:
    """A training step with gates on all heads over one without; BERT-base shapes, three layers."""
    model, batch = base_shapes(3).train(), texts()
    batch["labels"] = torch.arange(BATCH) % 2
    step = _step(model, batch)
    gates = HeadGates.of(model).train()
    ratio = side_by_side(step, lambda: step(gates), seconds=60)
    yield Figure("gated_step", ratio.value, 1.1, details=ratio.details(n=TOKENS, batch=BATCH))


def _step(model: BertForSequenceClassification, batch: dict[str, torch.Tensor]) -> Callable[..., None]:
    weights = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step(gates: HeadGates | None = None) -> None:
        with nullcontext() if gates is None else tapped(model, gates):
            loss = model(**batch).loss
        if gates is not None:
            loss = loss + gates.weight * gates.value
        loss.backward()
        weights.step()
        weights.zero_grad()
        if gates is not None:
            with torch.no_grad():
                gates.log_alpha -= 0.05 * gates.log_alpha.grad
            gates.advance()
            gates.zero_grad()

    return step


BENCHES = {"pruned_saving": pruned_saving, "gated_step": gated_step}
