"""attend, taps and tapping: edits arrive, threads do not mix, exceptions leave the model as it was."""

import threading

import pytest
import torch
from tiny import inputs, tiny_model

from lorgnette.attending import Call, Recorder, Site, Tap, attend
from lorgnette.attending.attend import scores_of
from lorgnette.errors import CaptureError
from lorgnette.models.families import anatomy_of
from lorgnette.models.tapping import tapped


class Count(Tap):
    def __init__(self):
        self.sites, self.opened, self.closed = [], [], []

    def open(self, stack):
        self.opened.append(stack)

    def close(self, stack):
        self.closed.append(stack)

    def see(self, call):
        self.sites.append(call.site)


def fingerprint(model):
    """Everything a tapping might leave behind."""
    configs = {id(m.config): m.config._attn_implementation for m in model.modules() if hasattr(m, "config")}
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    return configs, hooks, ["forward" in vars(m) for m in model.modules()]


@pytest.mark.parametrize("family", ["bert", "mpnet", "marian"])
def test_exception_leaves_the_model_as_it_was(family):
    model = tiny_model(family)
    before = fingerprint(model)
    expected = model(**inputs(model))[0]

    class Fail(Tap):
        def see(self, call):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), tapped(model, Fail()):
        model(**inputs(model))
    assert fingerprint(model) == before
    assert torch.equal(model(**inputs(model))[0], expected)


def test_a_pass_that_broke_off_does_not_confuse_the_next():
    model, count = tiny_model("bert"), Count()

    class FailOnce(Tap):
        failed = False

        def see(self, call):
            if call.site.layer == 1 and not self.failed:
                self.failed = True
                raise MemoryError

    with tapped(model, FailOnce(), count):
        with pytest.raises(MemoryError):
            model(**inputs(model))
        count.sites.clear()
        model(**inputs(model))
    assert [site.layer for site in count.sites] == [0, 1, 2]


def test_nested_tappings_both_see_and_restore():
    model, outer, inner = tiny_model("bert"), Count(), Count()
    before = fingerprint(model)
    with tapped(model, outer):
        with tapped(model, inner):
            model(**inputs(model))
        model(**inputs(model))
    assert (len(outer.sites), len(inner.sites)) == (6, 3)
    assert fingerprint(model) == before


@pytest.mark.parametrize("shared", [False, True], ids=["two models", "one model"])
def test_two_threads_do_not_mix(shared):
    one = tiny_model("bert", seed=1)
    models = [one, one if shared else tiny_model("bert", seed=2)]
    before = [fingerprint(model) for model in models]
    given = [inputs(models[0], lengths=(7,)), inputs(models[1], lengths=(5,))]
    barrier, seen, failed = threading.Barrier(2), [[], []], []

    class Shapes(Tap):
        def __init__(self, number):
            self.number = number

        def see(self, call):
            seen[self.number].append(call.query.shape[2])

    def work(number):
        try:
            for _ in range(10):
                barrier.wait()
                with torch.no_grad(), tapped(models[number], Shapes(number)):
                    models[number](**given[number])
        except Exception as error:
            failed.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert seen == [[7] * 30, [5] * 30]
    assert [fingerprint(model) for model in models] == before


def test_edits_of_scores_weights_and_context():
    model = tiny_model("bert", dtype=torch.float64)
    given = inputs(model, lengths=(6,))
    seen: dict[str, Call] = {}

    class OnlyFirst(Tap):
        def scores(self, call, scores):
            out = torch.full_like(scores, -torch.inf)
            out[..., 0] = scores[..., 0]
            return out

    class Keep(Tap):
        def see(self, call):
            seen[call.site.layer] = call

    with torch.no_grad(), tapped(model, OnlyFirst(), Keep()):
        model(**given)
    for call in seen.values():
        assert torch.equal(call.weights[..., 0], torch.ones_like(call.weights[..., 0]))
        assert torch.allclose(call.context, call.value[:, :, :1].expand_as(call.context))
        assert float(call.entropy().max()) == 0.0

    class Uniform(Tap):
        def weights(self, call, weights):
            return torch.full_like(weights, 1 / weights.shape[-1])

    with torch.no_grad(), tapped(model, Uniform(), Keep()):
        model(**given)
    assert torch.allclose(seen[0].context, seen[0].value.mean(2, keepdim=True).expand_as(seen[0].context))

    class KnockOut(Tap):
        def context(self, call, context):
            return context * torch.tensor([0.0, 1, 1, 1], dtype=context.dtype)[:, None, None]

    with torch.no_grad(), tapped(model, KnockOut(), Keep()):
        model(**given)
    assert float(seen[1].context[:, 0].abs().max()) == 0.0
    # Setting a head's rows of W_O to zero is the same edit.
    with torch.no_grad():
        with tapped(model, KnockOut()):
            edited = model(**given)[0]
        for site in anatomy_of(model).sites:
            site.output.weight[:, :8] = 0.0
        torch.testing.assert_close(model(**given)[0], edited, rtol=1e-10, atol=1e-10)


def test_generation_goes_through_editing_taps():
    """Under generate the decoder calls with one query and a growing cache; the text must be that of the plain model."""
    model = tiny_model("marian")
    given = {k: v for k, v in inputs(model).items() if not k.startswith("decoder")}
    options = {"max_new_tokens": 6, "num_beams": 2, "do_sample": False}
    plain = model.generate(**given, **options)

    class Same(Tap):
        def context(self, call, context):
            return context * 1.0

    count = Count()
    with tapped(model, Same(), count):
        watched = model.generate(**given, **options)
    assert torch.equal(plain, watched)
    assert count.opened.count("encoder") == 1
    assert count.opened.count("decoder") > 1
    assert count.opened == count.closed


def test_a_family_with_attention_of_its_own_is_refused_by_name():
    import transformers

    model = transformers.FlaubertModel(transformers.FlaubertConfig(vocab_size=50, emb_dim=16, n_layers=1, n_heads=2))
    with pytest.raises(CaptureError, match=r"FlaubertModel under transformers .*does not go through"), tapped(model):
        pass


def test_drift_is_refused():
    """A model whose attention does not pass through the interface is an error, never a silent nothing."""
    model = tiny_model("bert")
    skipped = model.encoder.layer[1].attention.self
    real = type(skipped).forward

    def around(self, hidden_states, *arguments, **keywords):
        return hidden_states, None

    skipped.forward = around.__get__(skipped)
    with pytest.raises(CaptureError, match=r"was due"), torch.no_grad(), tapped(model):
        model(**inputs(model))
    del skipped.forward
    last = model.encoder.layer[2].attention.self
    last.forward = around.__get__(last)
    with pytest.raises(CaptureError, match="2 of the 3 attention calls"), torch.no_grad(), tapped(model):
        model(**inputs(model))
    del last.forward
    assert type(skipped).forward is real


def test_gradient_checkpointing_is_refused():
    model = tiny_model("bert").train()
    model.gradient_checkpointing_enable()
    with pytest.raises(CaptureError, match="gradient checkpointing"), tapped(model):
        model(**inputs(model))[0].sum().backward()


def test_a_block_is_a_block_of_the_matrix_and_has_gradients():
    torch.manual_seed(0)
    for causal in (False, True):
        module = torch.nn.Identity()
        query, key, value = (torch.randn(2, 3, 5, 4, requires_grad=True) for _ in range(3))
        bias = torch.randn(1, 3, 5, 5)
        context, weights = attend(module, query, key, value, None, is_causal=causal, position_bias=bias)
        assert weights is None
        scores, value = scores_of(query, key, value, None, None, is_causal=causal, bias=bias, softcap=None)
        call = Call(Site("encoder", "self", 0), scores, value)
        some = call.block(rows=[0, 3])
        assert not call.has_weights
        some[..., 0].sum().backward()
        assert query.grad is not None
        second = call.block(slice(1, 2), slice(1, 4), slice(1, 3))
        torch.testing.assert_close(some, call.weights[:, :, [0, 3]])
        torch.testing.assert_close(second, call.weights[1:2, 1:3, 1:4])
        torch.testing.assert_close(second, call.block(slice(1, 2), slice(1, 4), slice(1, 3)))
        torch.testing.assert_close(context.transpose(1, 2), call.weights @ value, rtol=1e-5, atol=1e-6)


def test_additive_masks_are_understood():
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, 4, 3) for _ in range(3))
    additive = torch.zeros(1, 1, 4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), torch.finfo(torch.float32).min)
    slope = additive + torch.linspace(0, 1, 4)
    for mask in (additive, slope):
        context, _ = attend(torch.nn.Identity(), query, key, value, mask, is_causal=False)
        expected = torch.softmax(query @ key.transpose(-1, -2) * 3**-0.5 + mask, -1) @ value
        torch.testing.assert_close(context.transpose(1, 2), expected)


def test_a_recorder_keeps_what_it_is_asked_for():
    model = tiny_model("bert")
    given = inputs(model)
    whole, first = Recorder(lambda call: call), Recorder.of("weights", "context", heads=[1], rows=[0, 2])
    last = Recorder.of("value", sites=[Site("encoder", "self", 1)], graph=True)
    for _ in range(2):  # a second pass takes the place of the first
        with torch.no_grad(), tapped(model, whole, first, last):
            model(**given)
    assert (
        list(whole.records)
        == list(first.records)
        == [Site("encoder", "self", layer) for layer in range(len(whole.records))]
    )
    assert list(last.records) == [Site("encoder", "self", 1)]
    for site, call in whole.records.items():
        assert call.site == site
        torch.testing.assert_close(first[site]["weights"], call.weights[:, [1]][:, :, [0, 2]])
        torch.testing.assert_close(first[site]["context"], call.context[:, [1]][:, :, [0, 2]])
    with pytest.raises(ValueError, match="wieghts"):
        Recorder.of("wieghts")


def test_the_residual_of_the_outer_tap_stays_when_an_inner_one_wants_none():
    model = tiny_model("bert")
    outer = Recorder(lambda call: call.residual, residual=True)
    with torch.no_grad(), tapped(model, outer), tapped(model, Tap()):
        model(**inputs(model))
    assert all(residual.dim() == 3 for residual in outer.records.values())
