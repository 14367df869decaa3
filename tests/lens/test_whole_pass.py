"""Lenses that wait for all layers of a batch: a batch that broke off leaves nothing behind."""

import pytest
import torch
from tiny import examples, subject

from lorgnette.looking.look import look
from lorgnette.testing import assert_close


@pytest.mark.parametrize(
    ("family", "names"),
    [("bert-classifier", ["distances", "rollout", "gradients", "frequency"]), ("marian", ["distances", "frequency"])],
)
def test_a_batch_that_does_not_fit_is_halved_to_the_same_numbers(family, names, monkeypatch):
    tiny, texts = subject(family), examples()
    whole = look(tiny, texts, names, progress=False)
    run, failures = tiny.run, []

    def tight(batch, **options):
        outputs = run(batch, **options)
        if len(batch) > 2:
            failures.append(len(batch))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return outputs

    monkeypatch.setattr(tiny, "run", tight)
    halved = look(tiny, texts, names, progress=False)
    assert failures
    for name in names:
        assert_close(whole[name].data, halved[name].data, name, 1e-9)
