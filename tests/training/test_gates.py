"""Gates on heads: what they do to a model, what they cost, which heads they keep, and that they survive a file."""

import math
import warnings
from types import SimpleNamespace

import pytest
import torch
from tiny import inputs, tiny_model
from transformers import TrainerControl, TrainerState, TrainingArguments

from lorgnette.attending import Site, Tap
from lorgnette.errors import UserError
from lorgnette.models.families import anatomy_of
from lorgnette.models.tapping import tapped
from lorgnette.training.gates.gated import _Steps
from lorgnette.training.gates.gates import LOUIZOS, VOITA, HeadGates, freeze
from lorgnette.training.gates.hard_concrete import even_odds, probability_one, probability_open

TWO = {Site("encoder", "self", 0): (0, 1, 2), Site("encoder", "self", 1): (0, 1)}


def logits(model, batch, *taps):
    with torch.no_grad(), tapped(model, *taps):
        output = model(**batch)
    return output["logits"] if "logits" in output else output[0]


class Closed(Tap):
    """Zeroes chosen heads by hand."""

    def __init__(self, closed):
        self.closed = closed

    def context(self, call, context):
        out = context.clone()
        out[:, self.closed.get(call.site, [])] = 0
        return out


@pytest.mark.parametrize("family", ["bert-classifier", "marian", "gpt2", "mpnet", "llama", "t5"])
def test_a_trained_model_is_unchanged_at_the_start(family):
    model = tiny_model(family, dtype=torch.float64)
    batch = inputs(model)
    gates = HeadGates.of(model).eval()
    assert torch.equal(logits(model, batch, gates), logits(model, batch))
    assert gates.open_heads == sum(site.heads for site in anatomy_of(model).sites)


def test_closed_gates_are_heads_at_zero():
    model = tiny_model("marian", dtype=torch.float64)
    batch = inputs(model)
    gates = HeadGates.of(model).eval()
    closed = {site: [1, 3] for site in gates.heads if site.layer == 1}
    with torch.no_grad():
        for site, heads in closed.items():
            for head in heads:
                gates.log_alpha[gates.place[site]][head] = -3.0
    assert torch.equal(logits(model, batch, gates), logits(model, batch, Closed(closed)))


@pytest.mark.parametrize("stacks", [("encoder",), ("decoder",), ("cross",), ("decoder", "cross")])
def test_gates_touch_only_the_sites_they_are_given(stacks):
    model = tiny_model("marian")
    batch = inputs(model)
    gates = HeadGates.of(model, stacks, start=-4.0).eval()
    assert {site.name for site in gates.heads} == set(stacks)
    everything = {site: list(range(4)) for site in gates.heads}
    assert torch.equal(logits(model, batch, gates), logits(model, batch, Closed(everything)))


def test_gates_are_drawn_anew_in_training_and_fixed_in_evaluation():
    model = tiny_model("bert-classifier")
    batch = inputs(model)
    gates = HeadGates.of(model, start="scratch").train()
    first, second = logits(model, batch, gates), logits(model, batch, gates)
    assert not torch.equal(first, second)
    gates.eval()
    assert torch.equal(logits(model, batch, gates), logits(model, batch, gates))


def test_the_penalty_is_a_sum_over_heads_and_a_mean_over_sites():
    gates = HeadGates(TWO, over="mean")
    with torch.no_grad():
        gates.log_alpha.copy_(torch.tensor([0.0, 1.0, -1.0, 2.0, -4.0]))
    open_ = [1 / (1 + math.exp(-(a - 0.33 * math.log(0.1 / 1.1)))) for a in gates.log_alpha.tolist()]
    assert gates.expected_open().item() == pytest.approx((sum(open_[:3]) + sum(open_[3:])) / 2, rel=1e-6)
    summed = HeadGates(TWO, over="sum")
    summed.log_alpha.data.copy_(gates.log_alpha.data)
    assert summed.value.item() == pytest.approx(sum(open_), rel=1e-6)


def test_the_weight_warms_up_in_training_and_is_whole_in_evaluation():
    gates = HeadGates(TWO, weight=0.4, warmup=4).train()
    seen = []
    for _ in range(6):
        seen.append(gates.weight)
        gates.advance()
    assert seen == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.4])
    gates.steps = 0
    assert gates.eval().weight == 0.4


def test_the_two_rules_and_their_disagreement():
    gates = HeadGates(TWO)
    first, second = TWO
    with torch.no_grad():
        gates.log_alpha.copy_(torch.tensor([3.0, -3.0, 3.0, -3.0, -3.0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gates.remaining_heads("code") == gates.remaining_heads("paper") == {first: [0, 2], second: []}
    with torch.no_grad():
        gates.log_alpha[1] = -1.0  # ẑ = .22, yet likelier 0 than 1
    with pytest.warns(UserWarning, match="1 of 5 gates are neither open nor closed.* 2 heads stay, by .* 3"):
        assert gates.remaining_heads("code")[first] == [0, 1, 2]
    with pytest.warns(UserWarning, match="Train longer"):
        assert gates.remaining_heads("paper")[first] == [0, 2]
    assert gates.strongest(3) == {first: [0, 1, 2], second: []}
    assert gates.strongest(3, empty=False) == {first: [0, 2], second: [0]}
    assert gates.with_one_each({first: [1], second: []}) == {first: [1], second: [0]}


def test_gates_come_back_from_a_file(tmp_path):
    gates = HeadGates(TWO, weight=0.3, warmup=7, over="sum", temperature=2 / 3)
    gates.log_alpha.data.normal_()
    gates.steps = 5
    gates.save(tmp_path)
    back = HeadGates.load(tmp_path)
    assert back.record() == gates.record()
    assert torch.equal(back.log_alpha, gates.log_alpha)
    assert back.steps == 5
    other = HeadGates(TWO, weight=0.1)
    with pytest.raises(UserError, match="differ in over, temperature, warmup, weight"):
        other.restore(tmp_path)
    with pytest.raises(UserError, match="cannot be read as gates"):
        HeadGates.load(tmp_path / "nowhere")


def test_log_alpha_stays_within_its_limits():
    gates = HeadGates(TWO)
    gates.log_alpha.data.fill_(50.0)
    gates.advance()
    assert gates.log_alpha.max().item() == pytest.approx(math.log(100))


@pytest.mark.parametrize("temperature", [VOITA, LOUIZOS])
def test_even_odds_are_kept_by_the_rule_of_the_paper(temperature):
    gates = HeadGates({Site("encoder", "self", 0): [0, 1, 2]}, start="scratch", temperature=temperature)
    assert gates.remaining_heads("paper") == gates.remaining_heads("code") == {Site("encoder", "self", 0): [0, 1, 2]}
    with torch.no_grad():
        gates.log_alpha[1] = -1e-6
    with pytest.warns(UserWarning, match="1 of 3 gates are neither open nor closed yet"):
        assert gates.remaining_heads("paper") == {Site("encoder", "self", 0): [0, 2]}
    off = HeadGates({Site("encoder", "self", 0): [0]}, stretch=(-0.2, 1.05), temperature=temperature)
    at = even_odds(temperature, off.stretch)
    zero = 1 - probability_open(torch.tensor(at, dtype=torch.float64), temperature, off.stretch)
    one = probability_one(torch.tensor(at, dtype=torch.float64), temperature, off.stretch)
    assert zero.item() == pytest.approx(one.item())


def test_gates_that_are_equally_strong_are_counted():
    gates = HeadGates({Site("encoder", "self", 0): range(5)})
    assert [gates.tied(count) for count in range(6)] == [0, 5, 5, 5, 5, 0]
    with torch.no_grad():
        gates.log_alpha.copy_(torch.tensor([1.0, 2.0, 2.0, 0.0, 3.0]))
    assert [gates.tied(count) for count in range(6)] == [0, 0, 2, 0, 0, 0]


def test_gates_are_clipped_by_their_own_norm(tmp_path):
    gates = HeadGates({Site("encoder", "self", 0): [0, 1]})
    gates.log_alpha.grad = torch.tensor([30.0, 40.0])
    steps = _Steps(SimpleNamespace(gates=gates))
    arguments = TrainingArguments(str(tmp_path), max_grad_norm=1.0, report_to=[])
    steps.on_pre_optimizer_step(arguments, TrainerState(), TrainerControl())
    assert gates.log_alpha.grad.tolist() == pytest.approx([0.6, 0.8], rel=1e-4)


def test_freezing_the_rest():
    model = tiny_model("marian")
    gates = HeadGates.of(model, ("encoder",))
    freeze(model, gates, "gated")
    assert {name for name, p in model.named_parameters() if p.requires_grad} == {
        f"model.encoder.layers.{name}" for name, _ in model.model.encoder.layers.named_parameters()
    }  # the embeddings are the decoder's too
    freeze(model, gates, "none")
    assert not any(p.requires_grad for p in model.parameters())
    assert gates.log_alpha.requires_grad


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight": -1.0}, "must be 0 or more"),
        ({"warmup": -1}, "number of steps"),
        ({"over": "men"}, "mean or sum.*Did you mean 'mean'"),
        ({"temperature": 0.0}, "above 0"),
        ({"stretch": (0.0, 1.1)}, "begin below 0"),
        ({"start": "traind"}, "Did you mean 'trained'"),
        ({"start": float("nan")}, "finite"),
    ],
)
def test_wrong_settings_are_told(options, message):
    with pytest.raises(UserError, match=message):
        HeadGates(TWO, **options)


def test_unknown_stacks_are_told():
    with pytest.raises(UserError, match="expected some of encoder, which"):
        HeadGates.of(tiny_model("bert"), ("decoder",))
    with pytest.raises(UserError, match="no head to gate"):
        HeadGates({})
