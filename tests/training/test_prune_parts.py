"""`prune` under a budget of parameters, megabytes or time: what goes, what is said, and what it is compared with."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from test_prune import PARTS, base, same, weights  # noqa: F401
from test_removal import made
from test_removed_parts import HEADS, OWN_UNITS, SINGLE, WHOLE, near
from tiny import BERT, LLAMA, inputs, tokenizer
from tiny.models import FALCON

import lorgnette as lo
from lorgnette.attending import Site
from lorgnette.errors import UserError
from lorgnette.models.families import anatomy_of
from lorgnette.models.families.layers import LAYER, UNITS, layers_of
from lorgnette.models.pruned.stock import stock_model
from lorgnette.training.distilling import TEMPERATURE, Teacher, distance
from lorgnette.training.gates.gates import HeadGates
from lorgnette.training.gates.hard_concrete import probability_open
from lorgnette.training.gates.parts import PartGates
from lorgnette.training.preparation import Prepared
from lorgnette.training.pruning import budget, scores, speed
from lorgnette.training.pruning import prune as pruning
from lorgnette.training.pruning.budget import equal_sizes
from lorgnette.training.pruning.compared import NOUNS, tuned_notes
from lorgnette.training.pruning.controls import Rates, apart, measure_controls
from lorgnette.training.pruning.parts import parts_of, why_all_stay
from lorgnette.training.pruning.prune import prune
from lorgnette.training.pruning.removal import remove_parts
from lorgnette.training.pruning.score import Score, score
from lorgnette.training.pruning.scores import by_importance, by_kind, importance, layer_order, layers_to_go
from lorgnette.training.pruning.sentences import kind_lines
from lorgnette.training.pruning.settings import KINDS, PruningSettings, size_of
from lorgnette.training.pruning.sweep import curve

VIT = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 16, "image_size": 8,
       "patch_size": 4}  # fmt: skip
FAMILIES = ("one key", *HEADS, *WHOLE, *OWN_UNITS)
"""Every family that can be pruned: test_removed_parts says so."""


def of_family(family, dtype=torch.float32):
    """A tiny model; "one key" is a Llama whose query heads share one key and value."""
    if family != "one key":
        return made(family, torch.float32 if family in SINGLE else dtype)
    torch.manual_seed(0)
    return hf.LlamaForCausalLM(hf.LlamaConfig(**{**LLAMA, "num_key_value_heads": 1})).eval().to(dtype)


def size(model):
    return sum(parameter.numel() for parameter in model.parameters())


def settings(base, out, **changes):  # noqa: F811
    given = {"model": str(base), "corpus": PARTS, "out": out, "epochs": 2, "batch_size": 32, "controls": 2}
    return PruningSettings(**{**given, "onnx": False, "settle": 1, **changes})


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(speed, "SECONDS", 0.04)
    monkeypatch.setattr(budget, "SECONDS", 0.04)


@pytest.mark.parametrize("family", FAMILIES)
def test_prices_are_what_removal_saves(family):
    """The priced cost of a choice is the number of parameters of the model that it leaves."""
    model = of_family(family)
    parts = parts_of(model)
    assert parts.whole == size(model)
    scores = torch.rand(len(parts.price), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for share in (0.3, 0.6, 0.9):
        least = parts.least(empty=False)
        limit = least + share * (parts.whole - least)
        kept = parts.best(scores, limit)
        left = remove_parts(model, kept)
        assert float(parts.cost(parts.here(kept).double())) == pytest.approx(size(left), rel=1e-9)
        assert size(left) <= limit
        dearest = max(float(parts.price.max()), *parts.rest.values()) + 4 * float(parts.price.max())
        assert size(left) >= limit - dearest - 0.3 * parts.whole, "the budget is used"
        assert all(len(heads) for site, heads in kept.items() if (Site(site.stack, LAYER, site.layer)) not in kept)


def test_heads_that_share_one_key_go_one_by_one():
    """The key and the value stay while a head does."""
    parts = parts_of(of_family("one key"), only=("heads",))
    assert len(parts.together.unique()) == len(parts.price) == 12
    assert parts.price.unique().tolist() == [2 * 32 * 8], "its rows of the queries, and its columns of the output"


@pytest.mark.parametrize(
    ("family", "kind", "said"),
    [
        ("gpt-oss", "units", "they are in experts, each of which reads some of the tokens only"),
        ("albert", "layers", "it runs the same layer again and again"),
        ("falcon", "heads", "one map holds the queries, the key and the value of each group"),
    ],
)
def test_kinds_that_stay_say_why(family, kind, said):
    model = made(family, torch.float32)
    with pytest.raises(
        UserError, match=rf"nothing of what was asked for can go from this {type(model).__name__}"
    ) as no:
        parts_of(model, only=(kind,))
    assert said in str(no.value)
    assert why_all_stay(model, kind) == said
    assert kind_lines({kind: {"stays": said}})[0].endswith(f" stay: {said}.")


def test_the_only_layer_stays():
    config = hf.BertConfig(**{**BERT, "num_hidden_layers": 1})
    with pytest.raises(UserError, match="layers: one layer of each stack stays, and there is no other"):
        parts_of(hf.BertModel(config), only=("layers",))


def test_the_best_choice_equals_a_search_over_thresholds():
    """Small enough to try every prefix of the order; written without bisection."""
    model = made("bert-classifier")
    parts = parts_of(model)
    scores = torch.rand(len(parts.price), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    limit = 0.6 * parts.whole
    order = scores.argsort(descending=True).tolist()
    costs = []
    for count in range(len(order) + 1):
        here = torch.zeros(len(order), dtype=torch.bool)
        here[order[:count]] = True
        costs.append(float(parts.cost(parts._needed(scores, here, empty=False).double())))
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(costs)), "more parts cost more"
    best = max(count for count, cost in enumerate(costs) if cost <= limit)
    here = torch.zeros(len(order), dtype=torch.bool)
    here[order[:best]] = True
    assert parts.best(scores, limit) == parts.kept(parts._needed(scores, here, empty=False))


@pytest.mark.parametrize("family", FAMILIES)
def test_closed_gates_are_parts_that_are_gone(family):
    model = of_family(family, torch.float64)
    batch = inputs(model)
    parts = parts_of(model)
    gates = PartGates(parts, 0.5 * parts.whole, steps=10, temperature=0.33).to(model.dtype).eval()
    scores = torch.rand(len(parts.price), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    kept = parts.best(scores, 0.7 * parts.whole)
    with torch.no_grad():
        gates.log_alpha.copy_(parts.here(kept).double() * 10 - 5)
        layers = [layer for layer in parts.layers if layer in parts.place]
        for layer in layers:  # a layer that goes has closed gates inside too
            assert bool(kept[layer]) or not any(kept[site] for site in parts.layers[layer])
    assert gates.remaining_heads() == kept
    with torch.no_grad(), gates.hooked(model):
        output = model(**batch)
    expected = output["logits"] if "logits" in output else output[0]
    small = remove_parts(model, gates.remaining_heads(), gates.values())
    with torch.no_grad():
        output = small(**batch)
    near(
        output["logits"] if "logits" in output else output[0],
        expected,
        model,
        batch,
        1e-5 if family in SINGLE else 1e-7,
    )


def test_the_penalty_equals_a_loop():
    """Σ_layer P(layer) (rest + Σ P(part) price), as a share of what can go, beyond the budget of this step."""
    model = made("bert-classifier")
    parts = parts_of(model)
    gates = PartGates(parts, 0.5 * parts.whole, steps=10, temperature=0.33).to(torch.float64)
    torch.manual_seed(0)
    with torch.no_grad():
        gates.log_alpha.copy_(torch.randn(len(parts.price), dtype=torch.float64) * 3)
    odds = probability_open(gates.log_alpha, 0.33, gates.stretch).tolist()
    cost = parts.fixed
    for layer in layers_of(model):
        own = sum(p.numel() for p in layer.module.parameters())
        inside = 0.0
        for site in (Site("encoder", "self", layer.site.layer), layer.units_site):
            for place in range(parts.place[site].start, parts.place[site].stop):
                price = float(parts.price[place])
                own, inside = own - price, inside + odds[place] * price
        cost += odds[parts.place[layer.site].start] * (own + inside)
    least = parts.least(empty=True)
    share = (cost - least) / (parts.whole - least)
    wanted = (0.5 * parts.whole - least) / (parts.whole - least)
    assert gates.excess().item() == pytest.approx(share - 1), "at the first step everything may stay"
    gates.steps = 3
    assert gates.excess().item() == pytest.approx(share - (1 + 0.5 * (wanted - 1)))
    gates.eval()
    assert gates.excess().item() == pytest.approx(share - wanted)
    gates.pressure = 2.5
    assert gates.value.item() == pytest.approx(2.5 * max(0.0, share - wanted))


@pytest.mark.parametrize("family", ["bert-classifier", "gpt2-classifier"])
def test_importance_equals_differences_of_the_loss(family):
    """Mean over texts of |∂ loss / ∂ gate| by the price, each gate moved by hand, one text at a time."""
    if family == "gpt2-classifier":
        torch.manual_seed(0)
        config = hf.GPT2Config(vocab_size=97, n_embd=16, n_layer=2, n_head=2, n_positions=64, pad_token_id=0)
        model = hf.GPT2ForSequenceClassification(config).eval().double()
    else:
        model = made(family)
    texts = torch.randint(5, 97, (3, 1, 6), generator=torch.Generator().manual_seed(0))
    rows = [
        {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.tensor([number % 2])}
        for number, ids in enumerate(texts)
    ]
    together = {key: torch.cat([row[key] for row in rows]) for key in rows[0]}
    ready = OneBatch(together)
    parts = parts_of(model)
    gates = PartGates(parts, 0.5 * parts.whole, steps=10, temperature=0.33).double()
    found = importance(model, gates, ready)
    layers = {layer.site: layer for layer in layers_of(model)}
    units = {layer.units_site: layer for layer in layers.values()}
    head = next(site for site in parts.sites if site.kind == "self")
    some = [(next(iter(units)), 3), (list(units)[-1], 0), (head, 1), (list(layers)[-1], 0)]
    for site, number in some:
        expected = np.mean([abs(slope(model, row, site, number, layers, units)) for row in rows])
        place = parts.place[site].start + number
        price = float(parts.price[place])
        if site.kind == LAYER:
            price = sum(p.numel() for p in layers[site].module.parameters())
        assert float(found[place]) * price == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_layers_go_by_the_loss_without_them():
    """The order equals a loop that removes layers for good; of the numbers of layers, the one with the least loss."""
    model = made("bert-classifier")
    ids = torch.randint(5, 97, (4, 6), generator=torch.Generator().manual_seed(0))
    row = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.tensor([0, 1, 1, 0])}
    ready, parts = OneBatch(row), parts_of(model)
    gates = PartGates(parts, parts.fixed + 0.4 * (parts.whole - parts.fixed), steps=1, temperature=0.33).double()
    left, expected = [site for site in parts.sites if site.kind == LAYER], []
    while len(left) > 1:
        with torch.no_grad():
            losses = {
                site: float(remove_parts(model, {one: [] for one in (*expected, site)})(**row).loss) for site in left
            }
        expected.append(min(left, key=losses.get))
        left.remove(expected[-1])
    order = layer_order(model, gates, ready)
    assert len(order) == len(parts.layers) - 1, "two thirds of the layers go to keep 0.4"
    assert order == expected
    tried = {}
    for count in range(len(order) + 1):
        scores = by_kind(parts, importance(model, gates, ready))
        for layer in parts.layers:
            scores[parts.place[layer]] = -1e9 if layer in order[:count] else 1e9
        small = remove_parts(model, parts.best(scores, gates.limit))
        assert size(small) <= gates.limit
        with torch.no_grad():
            tried[count] = float(small(**row).loss)
    assert layers_to_go(model, gates, ready, empty=False) == order[: min(tried, key=tried.get)]
    kept = parts.best(by_importance(model, gates, ready, empty=False), gates.limit)
    assert [site for site in parts.layers if not kept[site]] == sorted(order[: min(tried, key=tried.get)])


def test_scores_by_kind_have_mean_one():
    parts = parts_of(made("bert-classifier"))
    scores = torch.rand(len(parts.price), dtype=torch.float64) + 0.1
    scores[parts.place[next(iter(parts.sites))].start] = -float("inf")  # a head that has gone
    found = by_kind(parts, scores)
    for of_heads in (True, False):
        sites = [s for s in parts.sites if s.kind in (("self",) if of_heads else (UNITS,))]
        values = [float(found[n]) for s in sites for n in range(parts.place[s].start, parts.place[s].stop)]
        finite = [value for value in values if value > -1e300]
        assert len(values) - len(finite) == of_heads
        assert sum(finite) / len(finite) == pytest.approx(1)
    layers = [parts.place[s].start for s in parts.sites if s.kind == LAYER]
    assert torch.equal(found[layers], scores[layers])


class OneBatch(Prepared):
    """Prepared texts that are one batch."""

    def __init__(self, batch):
        object.__setattr__(self, "batch", batch)
        object.__setattr__(self, "validation", [{"input_ids": ids} for ids in batch["input_ids"]])

    def trainer_parts(self):
        return {"data_collator": lambda _: dict(self.batch)}


def slope(model, row, site, number, layers, units, step=1e-5):
    """(loss at 1 + step − loss at 1 − step) / 2 step."""
    losses = []
    for gate in (1 + step, 1 - step):
        if site.kind == UNITS:
            place = units[site].feed_forward.contract

            def scaled(_, given, gate=gate):
                return (torch.cat([given[0][..., :number], given[0][..., number : number + 1] * gate,
                                   given[0][..., number + 1 :]], -1),)  # fmt: skip

            hook = place.register_forward_pre_hook(scaled)
        elif site.kind == LAYER:
            hook = layers[site].module.register_forward_hook(lambda _, x, y, g=gate: g * y + (1 - g) * x[0])
        else:
            output = anatomy_of(model)[site].output

            def of_head(_, given, gate=gate):
                factors = torch.ones(given[0].shape[-1], dtype=torch.float64)
                factors[number * 8 : (number + 1) * 8] = gate
                return (given[0] * factors,)

            hook = output.register_forward_pre_hook(of_head)
        with torch.no_grad():
            losses.append(float(model(**row).loss))
        hook.remove()
    return (losses[0] - losses[1]) / (2 * step)


def test_the_distance_from_the_teacher_equals_a_loop():
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    total = 0.0
    for own, taught in zip(x.tolist(), y.tolist(), strict=True):
        q, p = (np.exp(np.array(row) / TEMPERATURE) for row in (own, taught))
        q, p = q / q.sum(), p / p.sum()
        total += TEMPERATURE**2 * float((p * np.log(p / q)).sum())
    assert float(distance(x, y)) == pytest.approx(total / 5)


@pytest.mark.parametrize("family", ["bert-classifier", "marian"])
def test_the_model_itself_has_nothing_to_learn_from_itself(family):
    """And a model without a layer is compared at the others; padding does not count."""
    model = made(family)
    batch = inputs(model)
    labels = torch.tensor([0, 1, 2]) if family == "bert-classifier" else batch["decoder_input_ids"]
    batch["labels"] = labels
    last = [layer.site for layer in layers_of(model)][-1]
    small = remove_parts(model, {last: [], next(s for s in parts_of(model).sites if s.kind == UNITS): range(5)})
    for student, same_model in ((made(family), True), (small, False)):
        teacher = Teacher(made(family), 1.0)
        with teacher.watching(student), torch.no_grad():
            found = teacher.loss(student(**batch).logits, batch)
            assert (float(found) < 1e-12) == same_model
            changed = {**batch, "input_ids": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, 7)}
            again = teacher.loss(student(**changed).logits, changed)
        assert float(again) == pytest.approx(float(found), abs=1e-9)


def test_half_of_the_parameters(base, tmp_path, capsys):  # noqa: F811
    done = prune(settings(base, tmp_path / "out", keep=0.5, progress=True, scratch=True))
    record = done.record
    whole = hf.AutoModelForSequenceClassification.from_pretrained(base)
    layers = sum(p.numel() for layer in layers_of(whole) for p in layer.module.parameters())
    assert record["parameters"]["before"] - record["parameters"]["after"] >= layers / 2
    assert record["parameters"]["after"] > record["parameters"]["before"] - 0.75 * layers
    assert set(record["kinds"]) == {"heads", "units", "layers"}
    assert len(record["controls"]["random"]) == 2
    assert 0 <= record["controls"]["magnitude"] <= 1
    assert record["tuned"]["epochs"] == 3
    assert record["tuned"]["difference"]["interval"][0] <= record["tuned"]["difference"]["value"]
    assert 0 <= record["scratch"]["accuracy"] <= 1
    opened = lo.load(str(done.folder)).model
    assert size(opened) == record["parameters"]["after"]
    said = capsys.readouterr().err
    assert "Removing all feed-forward units saves" in said
    for kind in ("heads", "units", "layers"):
        sizes = record["kinds"][kind]["bytes"]
        assert f"{(sizes['before'] - sizes['after']) / 1e6:.1f} of {sizes['before'] / 1e6:.1f} (" in said
    left = record["parameters"]["before"] - layers / 2
    assert f"--keep 0.5 keeps {layers / 2:,.0f} of the {layers:,} parameters of the layers" in said
    assert f"that is {left / record['parameters']['before']:.1%} of the model" in said
    assert not list(done.folder.parent.glob(".*"))


@pytest.mark.parametrize(
    "changes",
    [
        {"keep": 0.6, "method": "importance", "bf16": True},
        {"keep": 0.5, "only": ("units",)},
        {"keep": 0.6, "only": ("layers",), "settle": 0},
        {"size": "20KB"},
        {"speed": 1.05, "allow_empty": True},
        {"keep": 0.5, "train": "none", "settle": 0},
    ],
)
def test_budgets_of_every_kind(base, tmp_path, changes):  # noqa: F811
    done = prune(settings(base, tmp_path / "out", **changes))
    record = done.record
    assert record["parameters"]["after"] < record["parameters"]["before"]
    if "size" in changes:
        assert record["bytes"]["after"] <= 20_000
    only = changes.get("only", ())
    if only == ("units",):
        assert record["heads"]["before"] == record["heads"]["after"]
        assert record["layers"]["before"] == record["layers"]["after"]
    if only == ("layers",):
        assert len(record["layers"]["after"]["encoder"]) == 1


@pytest.mark.parametrize("method", ["gates", "importance"])
def test_half_precision_ends_with_the_training(method, base, tmp_path, monkeypatch):  # noqa: F811
    """Seen: pruned models scored and timed in bfloat16 beside a whole one in float32, three times as fast."""
    seen = []

    def scored(model, ready):
        seen.append(model)
        assert not {"forward", "_original_forward"} & model.__dict__.keys()
        return score(model, ready)

    monkeypatch.setattr(pruning, "score", scored)
    prune(settings(base, tmp_path / "out", method=method, keep=0.6, bf16=True, epochs=1, limit=64, test_limit=20))
    assert len(seen) == 3, "before, after, and the whole model trained as long"


def test_an_interrupted_budget_goes_on_to_the_same_weights(base, tmp_path, monkeypatch):  # noqa: F811
    given = {"evaluate_every": 2, "keep": 0.5}
    whole = prune(settings(base, tmp_path / "whole", **given))
    real = HeadGates.advance

    def breaks(self):
        real(self)
        if self.steps == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(HeadGates, "advance", breaks)
    with pytest.raises(KeyboardInterrupt, match="--resume goes on"):
        prune(settings(base, tmp_path / "broken", **given))
    monkeypatch.setattr(HeadGates, "advance", real)
    resumed = prune(settings(base, tmp_path / "broken", **given, resume=True))
    assert same(weights(resumed.folder), weights(whole.folder))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"size": "60"}, "such as 60MB. Got '60'"),
        ({"size": "0MB"}, "such as 60MB"),
        ({"speed": 1.0}, "`speed` must be a number above 1"),
        ({"keep": 0.5, "size": "1MB"}, "`keep` and `size` are two budgets"),
        ({"speed": 2.0, "weight": 0.1}, "`speed` sets how much remains"),
        ({"only": ("units",)}, "Without a budget only heads go"),
        ({"keep": 0.5, "only": ("unit",)}, "Did you mean 'units'"),
        ({"keep": 0.5, "method": "agreement"}, "'agreement' ranks heads"),
        ({"keep": 0.5, "sweep": [0.5]}, "`sweep` and `keep` both say"),
        ({"sweep": [0.5, 0.5]}, "the same share twice"),
        ({"sweep": [0.5, 1.5]}, "above 0 and at most 1"),
        ({"sweep": [0.5], "method": "agreement"}, "'agreement' ranks heads"),
        ({"keep": 0.5, "uniform": True, "only": ("heads",)}, "omit `only`"),
        ({"keep": 0.5, "over": "sum"}, "`over` is for a penalty on the number of heads"),
        ({"keep": 1.0}, "`keep` 1 keeps everything"),
    ],
)
def test_wrong_budgets_are_told_before_anything_is_read(changes, said, tmp_path):
    with pytest.raises(UserError, match=said) as refused:
        settings("nowhere", tmp_path / "out", **changes)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"keep": 0.001}, r"`keep` 0.001 cannot be reached: 0\.\d+ of the parameters"),
        ({"size": "1KB"}, "`size` 1KB cannot be reached: .* MB remain"),
        ({"size": "1GB"}, r"`size` 1GB is no less than the 0\.\d+ MB of the model, so nothing would go"),
        ({"keep": 0.99, "only": ("heads",)}, r"`keep` 0\.99 keeps all of the heads, so nothing would go"),
        ({"speed": 500.0}, "`speed` 500 cannot be reached: .* times as fast here"),
        ({"keep": 0.2, "only": ("layers",)}, r"only layers may go"),
        ({"keep": 0.2, "only": ("heads",)}, "2 heads cannot|cannot be in 2 layers|no head is left"),
        ({"keep": 0.5, "format": "stock"}, "--format stock is for models that transformers knows by itself"),
    ],
)
def test_budgets_that_cannot_be_reached(base, tmp_path, changes, said, monkeypatch):  # noqa: F811
    """Said before training."""
    monkeypatch.setattr(HeadGates, "advance", lambda self: pytest.fail("it trained"))
    if changes == {"keep": 0.2, "only": ("heads",)}:
        changes = {"keep": 0.1, "only": ("heads",)}
    with pytest.raises(UserError, match=said):
        prune(settings(base, tmp_path / "out", **changes))
    assert not list(tmp_path.iterdir()), "another budget can be asked for"


@pytest.mark.parametrize(
    ("made_by", "changes", "said"),
    [
        (
            lambda **labels: hf.SplinterForQuestionAnswering(hf.SplinterConfig(**BERT, question_token_id=4, **labels)),
            {},
            r"model' cannot be pruned: there is no record of its family \(splinter\).*These can be pruned: bert, ele",
        ),
        (
            lambda **labels: hf.FalconForSequenceClassification(hf.FalconConfig(**FALCON, **labels)),
            {"only": ("heads",)},
            r"heads cannot be removed from .*model' \(falcon\): one map holds .*\. Set `keep`",
        ),
        (
            lambda **labels: hf.ViTForImageClassification(hf.ViTConfig(**VIT, **labels)),
            {},
            r"model' \(vit\) reads pictures, and prune trains and scores on texts alone. Remove its heads with",
        ),
    ],
)
def test_families_that_cannot_be_pruned(made_by, changes, said, tmp_path):
    """One line, before anything is written."""
    folder, names = tmp_path / "model", ("negative", "positive")
    model = made_by(id2label=dict(enumerate(names)), label2id={name: n for n, name in enumerate(names)})
    model.save_pretrained(folder)
    tokenizer("bert").save_pretrained(folder)
    with pytest.raises(UserError, match=said) as refused:
        prune(settings(folder, tmp_path / "out", keep=0.5, **changes))
    assert "\n" not in str(refused.value)
    assert [each.name for each in tmp_path.iterdir()] == ["model"]


def test_a_sweep_is_a_folder_for_each_budget_a_table_and_a_figure(base, tmp_path):  # noqa: F811
    given = {"method": "importance", "only": ("heads", "units"), "settle": 0}
    done = swept(base, tmp_path / "out", [0.8, 0.5], **given)
    rows = done.record["sweep"]
    assert [row["keep"] for row in rows] == [0.8, 0.5]
    assert rows[0]["parameters"] > rows[1]["parameters"]
    for row in rows:
        assert size(lo.load(row["folder"]).model) == lo.Pruned.load(row["folder"]).record["parameters"]["after"]
    lines = (tmp_path / "out" / "sweep.md").read_text().splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert len(lines) == 4
    drawn = curve(rows).to_dict()["hconcat"][1]["layer"][1]["data"]["values"]
    assert [each["value"] for each in drawn if each["choice"] == "random"] == [
        value for row in rows for value in row["controls"]["random"]
    ]
    assert "<svg" in (tmp_path / "out" / "sweep.svg").read_text()
    again = swept(base, tmp_path / "out", [0.8, 0.5, 0.6], resume=True, **given)
    assert again.record["sweep"][:2] == rows, "what is finished does not run again"


def test_several_seeds_are_a_folder_each_and_a_line_of_means(base, tmp_path):  # noqa: F811
    given = {"method": "importance", "only": ("units",), "settle": 1, "seeds": [0, 3], "limit": 64}
    rows = swept(base, tmp_path / "out", [0.5], **given).record["sweep"]
    assert [(row["keep"], row["seed"]) for row in rows] == [(0.5, 0), (0.5, 3)]
    for row in rows:
        assert Path(row["folder"]) == tmp_path / "out" / "keep-0.5" / f"seed-{row['seed']}"
        record = lo.Pruned.load(row["folder"]).record
        assert record["seed"] == row["seed"]
        assert record["tuned"]["difference"] == row["others"]["tuned"]["difference"]
    assert not same(*(weights(Path(row["folder"])) for row in rows)), "the seed changes the training"
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in (tmp_path / "out" / "sweep.md").read_text().splitlines()
    ]
    assert len({len(line) for line in lines}) == 1
    assert [line[0] for line in lines] == ["seed", "---", "0", "3", "mean ± sd"]
    values = [row["value"] for row in rows]
    said = lines[4][lines[0].index("accuracy")]
    assert said == f"{sum(values) / 2:.4f} ± {abs(values[0] - values[1]) / 2**0.5:.4f}"


def test_models_trained_as_long_have_columns_and_notes(base, tmp_path):  # noqa: F811
    """The whole model, a random choice and random weights; one that does as well is named in a note."""
    given = {"method": "importance", "settle": 1, "scratch": True, "train_random": True, "seeds": [0, 1]}
    given |= {"limit": 64, "test_limit": 30}
    rows = swept(base, tmp_path / "out", [0.5], **given).record["sweep"]
    head, _, *lines, means = (tmp_path / "out" / "sweep.md").read_text().splitlines()
    for key, noun in (("tuned", "original"), ("random", "random choice"), ("scratch", "random weights")):
        column = head.split("|").index(f" less {noun} trained as long ")
        values = [row["others"][key]["difference"]["value"] for row in rows]
        for line, value in zip(lines, values, strict=True):
            assert line.split("|")[column].split()[0] == f"{value:+.4f}"
        assert means.split("|")[column].split()[0] == f"{sum(values) / 2:+.4f}"
    for row in rows:
        record = lo.Pruned.load(row["folder"]).record
        for key, noun in NOUNS.items():
            noted = [note for note in record["notes"] if note.startswith(f"{noun}, trained as long, did as well")]
            assert bool(noted) == (record[key]["difference"]["value"] <= 0)
        assert (Path(row["folder"]) / "README.md").read_text().count("trained as long: accuracy") == 3


@pytest.mark.parametrize(
    ("metric", "own", "other", "noted"),
    [
        ("accuracy", 0.7, 0.8, True),
        ("accuracy", 0.8, 0.8, True),
        ("accuracy", 0.8, 0.7, False),
        ("perplexity", 9.0, 8.0, True),
        ("perplexity", 8.0, 9.0, False),
    ],
)
def test_a_model_that_does_as_well_is_named(metric, own, other, noted, monkeypatch):
    both = [Score(metric, value, (0.0, 1.0), 10, "test", np.ones(10, dtype=bool)) for value in (own, other)]
    monkeypatch.setattr(Score, "minus", lambda self, than: (self.value - than.value, (-1.0, 1.0)))
    notes = tuned_notes(both[0], {"scratch": both[1]})
    assert len(notes) == noted
    assert all(note.startswith("a model of the same shape from random weights, trained as long") for note in notes)


def test_differences_from_random_choices_are_paired():
    """The mean and its interval equal a loop over drawn texts."""
    draw = np.random.default_rng(0)
    right = draw.integers(0, 2, (3, 30)).astype(float)
    total = np.ones(30)
    choices = [Rates(row, total) for row in right]
    found = apart(choices[0], choices[1:])
    assert found["value"] == pytest.approx(right[0].mean() - right[1:].mean())
    spread = np.std(right[0] - right[1:].mean(0)) / 30**0.5
    low, high = found["interval"]
    assert low < found["value"] < high
    assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.1)
    tokens = Rates(np.array([1.0, 6.0]), np.array([2.0, 6.0]))
    assert tokens.value == 7 / 8
    assert set(np.round(tokens.draws(), 6)) == {0.5, 0.875, 1.0}


def test_a_limit_bounds_what_is_ranked_and_compared(base, tmp_path, monkeypatch):  # noqa: F811
    """Training, the ranking, and the comparison with random choices before training."""
    seen, real = [], scores._batches

    def counted(ready, model, texts):
        for batch in real(ready, model, texts):
            seen.append((texts, len(batch["labels"])))
            yield batch

    monkeypatch.setattr(scores, "_batches", counted)
    given = {"keep": 0.5, "method": "importance", "only": ("units",), "settle": 0}
    record = prune(settings(base, tmp_path / "out", limit=12, **given)).record
    assert {texts for texts, _ in seen} == {12}
    assert sum(rows for _, rows in seen) <= 12 * 8
    assert record["controls"]["texts"] <= 12
    free = prune(settings(base, tmp_path / "free", **given)).record
    assert free["controls"]["texts"] == 60


def test_the_fine_tuning_stops_early(base, tmp_path):  # noqa: F811
    """By default there are two evaluations in an epoch, and two without improvement are enough."""
    given = {"keep": 0.5, "method": "importance", "only": ("units",), "controls": 0}
    training = {"settle": 30, "learning_rate": 0.05}
    done = prune(settings(base, tmp_path / "out", **given, **training))
    steps = [entry["step"] for entry in done.record["settled"]]
    assert steps[:2] == [3, 5] or steps[:2] == [3, 6], "five steps make an epoch"
    assert len(steps) < 60, "it stopped"
    losses = [entry["validation"]["loss"] for entry in done.record["settled"]]
    assert min(losses) == losses[-3], "two evaluations without improvement"
    more = prune(settings(base, tmp_path / "more", **given, **training, patience=4, evaluate_every=5))
    losses = [entry["validation"]["loss"] for entry in more.record["settled"]]
    assert [entry["step"] for entry in more.record["settled"]] == [5 * (n + 1) for n in range(len(losses))]
    assert min(losses) == losses[-5]


def test_one_seed_needs_no_folder_of_its_own(base, tmp_path):  # noqa: F811
    given = {"method": "importance", "only": ("units",), "settle": 0, "controls": 0, "onnx": False}
    done = lo.prune(base, PARTS, tmp_path / "out", keep=0.5, seeds=[2], **given)
    assert done.folder == tmp_path / "out"
    assert done.record["seed"] == 2
    for wrong, said in (({"seeds": [1], "seed": 2}, "Set `seed` or `seeds`, not both"), ({"seeds": [1, 1]}, "twice")):
        with pytest.raises(UserError, match=said):
            settings(base, tmp_path / "no", keep=0.5, **wrong)


def swept(base, out, shares, **given):  # noqa: F811
    return lo.prune(base, PARTS, out, epochs=1, batch_size=32, controls=1, onnx=False, sweep=shares, **given)


def test_sizes():
    assert [size_of(said) for said in ("60MB", "1.5 kb", "2GB", "7B")] == [60_000_000, 1500, 2_000_000_000, 7]


@pytest.mark.parametrize(("family", "only"), [("bert-classifier", ("units", "layers")), ("llama", KINDS)])
def test_equal_sizes_are_equal(family, only):
    model = made(family, torch.float32)
    parts = parts_of(model, only=only)
    scores = torch.rand(len(parts.price), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    fewer_heads = False
    for share in (0.9, 0.7, 0.5):
        kept = equal_sizes(parts, scores, share * parts.whole)
        for kind in {site.kind for site in kept} - {LAYER}:
            stays = [site for site in kept if site.kind == kind and kept[Site(site.stack, LAYER, site.layer)]]
            assert len({len(kept[site]) for site in stays}) == 1
            for site in stays:  # the best of this layer; heads with the best of their group
                least = scores[parts.together][parts.place[site]]
                inside = parts.here(kept)[parts.place[site]]
                assert inside.all() or least[inside].min() >= least[~inside].max()
                fewer_heads |= kind == "self" and not bool(inside.all())
        assert float(parts.cost(parts.here(kept).double())) <= share * parts.whole
        small = remove_parts(model, kept)
        assert stock_model(small).num_parameters() == size(small)
    assert fewer_heads == ("heads" in only)


def test_equal_sizes_of_our_own_classifier(base, tmp_path):  # noqa: F811
    done = prune(settings(base, tmp_path / "out", keep=0.6, uniform=True, method="importance", settle=0))
    config = json.loads((done.folder / "config.json").read_text())
    assert config["model_type"] == "lorgnette-classifier"
    assert "kept_units" not in config
    assert size(lo.load(str(done.folder)).model) == done.record["parameters"]["after"]
    said = (done.folder / "README.md").read_text()
    assert 'lorgnette.load("out")' in said
    assert "transformers import" not in said


def test_equal_sizes_open_in_transformers(tmp_path, monkeypatch):
    """--uniform: an ordinary checkpoint, as small as the pruned model. The choice without it may take heads, too."""
    seen = {}

    def measured(work, whole, parts, kept, other, free=None):
        seen.update(kept=kept, free=free)
        return measure_controls(work, whole, parts, kept, other, free)

    monkeypatch.setattr(pruning, "measure_controls", measured)
    from tiny import tiny_model

    from lorgnette.training import TrainingSettings, train

    model = tiny_model("bert")
    model.save_pretrained(tmp_path / "tiny")
    tokenizer("bert").save_pretrained(tmp_path / "tiny")
    trained = train(TrainingSettings(str(tmp_path / "tiny"), PARTS, tmp_path / "base", epochs=1, batch_size=32)).folder
    done = prune(settings(trained, tmp_path / "out", keep=0.5, uniform=True, epochs=1))
    config = json.loads((done.folder / "config.json").read_text())
    assert config["model_type"] == "bert"
    assert "kept_units" not in config
    opened = hf.AutoModelForSequenceClassification.from_pretrained(done.folder)
    assert type(opened).__name__ == "BertForSequenceClassification"
    assert size(opened) == done.record["parameters"]["after"] < done.record["parameters"]["before"]
    assert 0 <= done.record["controls"]["free"] <= 1
    assert set(done.record["heads"]["after"]["encoder"]) <= {0, 4}
    assert [[site.kind == "self" for site in seen[name]].count(True) for name in ("kept", "free")] == [0, 3]
    assert "transformers import" in (done.folder / "README.md").read_text()
