"""Every lens gives the same numbers on a GPU as on a CPU: `make test-gpu`."""

import numpy as np
import pytest
import torch
from net.answers import OPTIONS, texts_for
from tiny import classifier, subject

import lorgnette as lo
from lorgnette import lens as lenses
from lorgnette.errors import UserError

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: there is nothing to compare with")
MODELS = {
    "classifier": lambda: classifier(torch.float32),
    "llama": lambda: subject("llama", dtype=torch.float32),
    "marian": lambda: subject("marian", dtype=torch.float32),
}
LOOSE = {"effective_rank": 2e-2, "_q": 1e-2, "_p": 1e-2, "isoscore": 1e-3, "spearman": 2e-3}
"""Roots of eigenvalues that are zero but for rounding, probabilities and ranks: some rounding is seen in them."""
TRAINED = ("probes", "attention-probe", "gating")
"""Lenses that train something, whose steps make rounding larger."""


@pytest.mark.timeout(170)
@pytest.mark.parametrize("name", lenses.names())
@pytest.mark.parametrize("model", MODELS)
def test_a_lens_gives_the_same(model, name):
    results = []
    for device in ("cpu", "cuda"):
        watched = MODELS[model]()
        watched.model.to(device)
        torch.manual_seed(0)
        lens = lenses.get(name, **OPTIONS.get(name, {}))
        try:
            results.append(lo.look(watched, texts_for(model, name), [lens], progress=False)[name].data)
        except UserError as error:
            results.append(str(error))
    if isinstance(results[0], str):
        assert results[0] == results[1]  # what one refuses, the other does
        return
    host, gpu = results
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
    assert not unlike
