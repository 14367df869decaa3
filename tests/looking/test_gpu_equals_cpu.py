"""Every lens gives the same numbers on a GPU as on a CPU: `make test-gpu`."""

import numpy as np
import pytest
import torch
from net.answers import OPTIONS, texts_for
from tiny import classifier, gpt2, subject

import lorgnette as lo
from lorgnette import lens as lenses
from lorgnette.errors import UserError

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: there is nothing to compare with")
MODELS = {
    "classifier": lambda: classifier(torch.float32),
    "gpt2": lambda: gpt2(torch.float32),
    "llama": lambda: subject("llama", dtype=torch.float32),
    "marian": lambda: subject("marian", dtype=torch.float32),
}
LOOSE = {"effective_rank": 2e-2, "_q": 1e-2, "_p": 1e-2, "isoscore": 1e-3, "spearman": 2e-3}
"""Roots of eigenvalues that are zero but for rounding, probabilities and ranks: some rounding is seen in them."""
TRAINED = ("probes", "attention-probe", "gating")
"""Lenses that train something, whose steps make rounding larger."""


@pytest.mark.timeout(500)
@pytest.mark.parametrize("name", lenses.names())
def test_a_lens_gives_the_same(name):
    refused, unlike = {}, {}
    for model in MODELS:
        host, gpu = (_looked(model, name, device) for device in ("cpu", "cuda"))
        if isinstance(host, str):
            assert host == gpu  # what one refuses, the other does
            refused[model] = host
        elif found := _unlike(name, host, gpu):
            unlike[model] = found
    assert not unlike
    assert len(refused) < len(MODELS), refused


def _looked(model, name, device):
    watched = MODELS[model]()
    watched.model.to(device)
    torch.manual_seed(0)
    lens = lenses.get(name, **OPTIONS.get(name, {}))
    try:
        return lo.look(watched, texts_for(model, name), [lens], progress=False)[name].data
    except UserError as error:
        return str(error)


def _unlike(name, host, gpu):
    """The variables that differ, and by how much."""
    assert set(host.data_vars) == set(gpu.data_vars)
    unlike = {}
    for variable, expected in host.data_vars.items():
        mine = gpu[variable].values
        if expected.dtype.kind != "f":
            if not (mine == expected.values).all() and name not in TRAINED:
                unlike[variable] = int((mine != expected.values).sum())
            continue
        tolerance = next((loose for part, loose in LOOSE.items() if part in str(variable)), 1e-4)
        if name in TRAINED:
            tolerance = 0.05
        known = ~np.isnan(expected.values)
        size = np.max(np.abs(expected.values), initial=1e-3, where=known)
        if not np.allclose(mine, expected.values, rtol=tolerance, atol=tolerance * min(1.0, size), equal_nan=True):
            unlike[variable] = float(np.max(np.abs(mine - expected.values), initial=0.0, where=known))
    return unlike
