"""A plain training loop for small grids, everything on the device; the best weights by validation loss are kept."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Draw = Callable[[], dict[str, Tensor]]
"""The next batch: what the model is given, labels included."""


def train_steps(
    model: Any,
    draw: Draw,
    *,
    steps: int,
    learning_rate: float,
    validate: Callable[[], float] | None = None,
    checks: int = 10,
) -> dict[str, Any]:
    """Adam with a rate that falls linearly to zero, gradients clipped at norm 1; without `validate` the last weights
    stay. The model gives its own loss."""
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=device().type == "cuda")
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    every = max(1, steps // checks)
    best: dict[str, Any] = {"loss": float("inf"), "step": 0, "weights": None}
    tail: list[Tensor] = []
    for step in range(1, steps + 1):
        model.train()
        loss = model(**draw()).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step > steps - every:
            tail.append(loss.detach())
        if validate is not None and (step % every == 0 or step == steps):
            found = validate()
            if found < best["loss"]:
                kept = {name: value.detach().clone() for name, value in model.state_dict().items()}
                best = {"loss": found, "step": step, "weights": kept}
    if best["weights"] is not None:
        model.load_state_dict(best["weights"])
    model.eval()
    last = float(torch.stack(tail).mean())
    if last != last:
        raise FloatingPointError("the loss is no number any more")
    return {"training_loss": last, "best_step": best["step"] if validate is not None else steps}


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
