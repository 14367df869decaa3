"""Taps in any order, from any thread, on models that share parts, are copied, or are in training mode."""

import contextvars
import copy
import gc
import threading
from typing import ClassVar

import pytest
import torch
from tiny import EXAMPLES, bert, classifier, inputs, subject, tiny_model
from torch import nn

from lorgnette import look
from lorgnette.attending import Site, Tap
from lorgnette.errors import CaptureError, UserError
from lorgnette.explaining import explain
from lorgnette.models.interface import NAME
from lorgnette.models.tapping import tapped


class Count(Tap):
    calls = 0

    def see(self, call):
        self.calls += 1


def implementations(model):
    return {
        config._attn_implementation_internal for config in (m.config for m in model.modules() if hasattr(m, "config"))
    }


def hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def holding(model, tap):
    with tapped(model, tap):
        while True:
            yield model(**inputs(model))


@pytest.mark.parametrize("first", [0, 1])
def test_taps_close_in_any_order(first):
    model = tiny_model("bert")
    before = implementations(model), hooks(model)
    taps = Count(), Count()
    generators = [holding(model, tap) for tap in taps]
    for generator in generators:
        next(generator)
    layers = model.config.num_hidden_layers
    assert [tap.calls for tap in taps] == [2 * layers, layers]  # the first sees the second's pass too
    generators[first].close()
    left = taps[1 - first]
    left.calls = 0
    next(generators[1 - first])
    assert left.calls == layers
    generators[1 - first].close()
    assert (implementations(model), hooks(model)) == before
    after = Count()
    with tapped(model, after):
        model(**inputs(model))
    assert after.calls == layers


def test_a_tap_closed_in_another_context_leaves_nothing_behind():
    model = tiny_model("bert")
    generator = holding(model, Count())
    here = contextvars.copy_context()
    here.run(next, generator)
    generator.close()  # in a context that never saw the tap open
    again = Count()

    def run():
        with tapped(model, again):
            model(**inputs(model))

    here.run(run)
    assert again.calls == model.config.num_hidden_layers


def test_a_tap_that_is_forgotten_is_closed_by_the_collector():
    model = tiny_model("bert")
    before = implementations(model), hooks(model)
    generator = holding(model, Count())
    next(generator)
    del generator
    gc.collect()
    assert (implementations(model), hooks(model)) == before


@pytest.mark.parametrize("family", ["bert", "mpnet"])
def test_two_models_share_a_config(family):
    one = tiny_model(family)
    other = type(one)(one.config).eval()
    before = one.config._attn_implementation_internal
    first, second = Count(), Count()
    opened = tapped(one, first)
    opened.__enter__()
    with tapped(other, second):
        opened.__exit__(None, None, None)
        assert one.config._attn_implementation_internal == NAME
        other(**inputs(other))
    assert second.calls == one.config.num_hidden_layers
    assert one.config._attn_implementation_internal == before


@pytest.mark.parametrize("family", ["bert", "mpnet", "deberta-v2"])
def test_a_model_and_a_part_of_it_are_tapped_at_once(family):
    whole = tiny_model(family)
    wrapper = nn.Module()
    wrapper.inner, wrapper.config = whole, whole.config
    plain = whole(**inputs(whole)).last_hidden_state
    outer, inner = Count(), Count()
    first = tapped(whole, outer)
    first.__enter__()
    second = tapped(whole, inner)
    second.__enter__()
    first.__exit__(None, None, None)
    whole(**inputs(whole))
    second.__exit__(None, None, None)
    assert inner.calls == whole.config.num_hidden_layers
    assert torch.equal(plain, whole(**inputs(whole)).last_hidden_state)
    assert not any("forward" in module.__dict__ for module in whole.modules())


@pytest.mark.parametrize("family", ["bert", "mpnet", "deberta-v2"])
def test_the_copy_of_a_tapped_model_is_a_plain_model(family):
    model = tiny_model(family)
    given = inputs(model)
    plain = model(**given).last_hidden_state
    tap = Count()
    with tapped(model, tap):
        other = copy.deepcopy(model)
        assert NAME not in implementations(other)
        other(**given)
        assert tap.calls == 0
    assert torch.equal(other(**given).last_hidden_state, plain)
    own = Count()
    with tapped(other, own):
        other(**given)
    assert own.calls == model.config.num_hidden_layers
    assert tap.calls == 0


def test_a_model_that_runs_in_another_thread_is_not_silently_unseen():
    model = tiny_model("bert")
    tap = Count()

    def run():
        thread = threading.Thread(target=lambda: model(**inputs(model)))
        thread.start()
        thread.join()

    with pytest.raises(CaptureError, match="thread"), tapped(model, tap):
        run()
    with tapped(model, tap):  # the thread is told of the tap
        thread = threading.Thread(target=contextvars.copy_context().run, args=(lambda: model(**inputs(model)),))
        thread.start()
        thread.join()
    assert tap.calls == model.config.num_hidden_layers
    with tapped(model, tap):  # seen here as well: the other thread minds its own business
        model(**inputs(model))
        run()


def numbers(subject):
    return look(subject, EXAMPLES, ["weights", "norms"], progress=False)


def test_a_model_in_training_mode_is_looked_at_as_it_predicts():
    subject = classifier()
    for module in subject.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5
    expected, trace = numbers(subject), subject.trace("The cat sat.")
    explained = subject_explained(subject)
    subject.model.train()
    subject.model.base_model.eval()  # a mixture of modes comes back as it was
    modes = [module.training for module in subject.model.modules()]
    results = numbers(subject)
    assert all(results[name].data.equals(expected[name].data) for name in expected)
    assert torch.equal(subject.trace("The cat sat.").output.logits, trace.output.logits)
    assert torch.equal(subject_explained(subject), explained)
    assert all(check.ok for check in subject.check())
    assert [module.training for module in subject.model.modules()] == modes


def subject_explained(subject):
    return explain(subject, subject.encode(["The cat sat."]), "gradient_x_input").tokens


def test_a_trace_with_numbers_that_are_not_finite_is_refused():
    subject = bert()
    with torch.no_grad():
        subject.model.encoder.layer[1].attention.self.query.weight[0, 0] = torch.nan
    with pytest.raises(UserError, match=r"encoder.2"):
        subject.trace("The cat sat.")
    subject = bert()
    with torch.no_grad():
        subject.model.encoder.layer[-1].output.LayerNorm.weight[0] = torch.inf
    with pytest.raises(UserError, match="not finite"):
        subject.trace("The cat sat.")


def test_a_tap_may_run_the_model_that_it_taps():
    """The pass inside is not seen by the tap, and the pass outside goes on where it was."""
    watched = subject("bert")
    alone = watched.trace("the cat sat")["weights"]

    class Looks(Tap):
        seen: ClassVar[list[Site]] = []
        inside: ClassVar[list[torch.Tensor]] = []

        def see(self, call):
            self.seen.append(call.site)
            if not self.inside:
                self.inside.append(watched.trace("the cat sat")["weights"])

    with watched.tapped(Looks()):
        watched.run(watched.encode(["the cat sat"]))
    assert Looks.seen == list(watched.sites)
    assert torch.equal(Looks.inside[0], alone)


def test_a_hook_that_runs_its_own_model_is_told_so():
    watched = subject("bert")
    batch = watched.encode(["the cat sat"])
    ran = []

    def again(*_):
        if not ran:
            ran.append(True)
            watched.run(batch)

    hook = watched.anatomy.sites[0].module.register_forward_hook(again)
    with pytest.raises(CaptureError, match="or a hook ran the model inside its own pass"), watched.tapped(Tap()):
        watched.run(batch)
    hook.remove()
