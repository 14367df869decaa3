"""Gates are not the model's, so DistributedDataParallel does not average their gradients: we do."""

import json
from types import SimpleNamespace

import processes
import pytest
import torch
from tiny import tiny_model
from torch import distributed, multiprocessing

from lorgnette.training.gates.gated import _Steps
from lorgnette.training.gates.gates import HeadGates


def work(rank, folder):
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    gates = HeadGates.of(tiny_model("bert"))
    gates.log_alpha.grad = torch.full_like(gates.log_alpha, 1.0 + 2 * rank)
    arguments = SimpleNamespace(world_size=2, max_grad_norm=None)
    _Steps(SimpleNamespace(gates=gates)).on_pre_optimizer_step(arguments, None, None)
    (folder / f"{rank}.json").write_text(json.dumps(gates.log_alpha.grad.flatten().tolist()))
    distributed.destroy_process_group()


def test_gradients_of_the_gates_are_averaged(tmp_path):
    multiprocessing.start_processes(work, args=(tmp_path,), nprocs=2, start_method=processes.START)
    for rank in range(2):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found
        assert found == pytest.approx([2.0] * len(found))
