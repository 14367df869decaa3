"""Sinks against the matrix in float64, on planted heads, and against removal by hand."""

import numpy as np
import pytest
import torch
from tiny import EXAMPLES, MAKERS, classifier, planted

import lorgnette as lo
from benchmarks.planted_heads import HEADS
from lorgnette.attending import Tap
from lorgnette.attending.scores import Scores
from lorgnette.errors import UserError
from lorgnette.lens.sinks.lens import Sinks
from lorgnette.lens.sinks.removal import Keys, Removed


class Calls(Tap):
    wants_residual = True

    def __init__(self):
        self.calls = []

    def see(self, call):
        self.calls.append((call.site, call.weights.double(), call.value.double(), call.residual.double()))


def oracle(subject, example, threshold):
    """From the definitions, for one text: largest share, arrives, value ratio and activation ratio of every head."""
    calls = Calls()
    with torch.no_grad(), subject.tapped(calls):
        subject.run(subject.encode([example]), return_dict=True)
    out = {}
    for site, weights, value, residual in calls.calls:
        maps = subject.anatomy[site].output_weights()[0].detach()
        for head in range(weights.shape[1]):
            share = weights[0, head].mean(0)
            f = [(value[0, head, j] @ maps[head].double()).norm() for j in range(len(share))]
            sink = int(share.argmax())
            row = {"share": float(share[sink])}
            if share[sink] > threshold:
                row["arrives"] = float(share[sink] * f[sink] / sum(s * g for s, g in zip(share, f, strict=True)))
                others = [f[j] for j in range(len(f)) if j != sink]
                if others:
                    row["value_ratio"] = float(f[sink] / (sum(others) / len(others)))
                if site.kind == "self":
                    sizes = [float(state.abs().max()) for state in residual[0]]
                    row["activation_ratio"] = sizes[sink] / np.median(sizes)
            out[site.name, site.layer + 1, head + 1] = row
    return out


@pytest.mark.parametrize("kind", ["bert", "gpt2", "marian"])
def test_every_number_follows_from_the_definitions(kind):
    subject, threshold = MAKERS[kind](), 0.25
    data = lo.look(subject, list(EXAMPLES), [Sinks(thresholds=(0.2, 0.25), threshold=threshold)], progress=False)
    data = data["sinks"].data
    texts = [oracle(subject, example, threshold) for example in EXAMPLES]
    for place in texts[0]:
        cell = dict(zip(("stack", "layer", "head"), place, strict=True))
        rows = [text[place] for text in texts]
        for limit in (0.2, 0.25):
            rate = np.mean([row["share"] > limit for row in rows])
            assert float(data["rate"].sel(cell | {"threshold": limit, "category": "all"})) == pytest.approx(rate)
        for name in ("arrives", "value_ratio", "activation_ratio"):
            values = [row[name] for row in rows if name in row]
            expected = np.mean(values) if values else np.nan
            assert float(data[name].sel(cell)) == pytest.approx(expected, rel=1e-6, nan_ok=True)


def test_planted_sinks_are_found_and_the_control_has_none():
    for control in (False, True):
        subject, texts = planted(control=control)
        data = lo.look(subject, texts, ["sinks"], progress=False)["sinks"].data
        rate = data["rate"].sel(stack="encoder", layer=1, threshold=0.5)
        kinds = {"sep": "sep", "first": "cls"}
        for number, name in enumerate(HEADS, start=1):
            mine = rate.sel(head=number)
            if name in kinds and not control:
                assert float(mine.sel(category=kinds[name])) > 0.9
            elif name not in ("tree", "rare"):  # those read one token in some texts: the root's [CLS], the rare word
                assert float(mine.sel(category="all")) == 0.0


@pytest.mark.parametrize("what", ["value", "key"])
def test_removal_is_what_zeroing_by_hand_gives(what):
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, 5, 4, dtype=torch.float64) for _ in range(3))
    position = torch.tensor([[0, 1, 2], [3, 4, 0]])
    keys = Keys(position, torch.tensor([[True, True, False], [True, True, True]]))
    site = lo.Site("encoder", "self", 0)
    call = lo.Call(site, Scores(query, key, 0.5), value)
    edited = Removed({site: keys}, what).weights(call, call.weights) @ value
    for text in range(2):
        for head in range(3):
            v, scores = value[text, head].clone(), 0.5 * query[text, head] @ key[text, head].T
            if keys.exists[text, head]:
                if what == "value":
                    v[position[text, head]] = 0.0
                else:
                    scores[:, position[text, head]] = -torch.inf
            torch.testing.assert_close(edited[text, head], scores.softmax(-1) @ v)


def test_the_loss_without_sinks():
    subject = classifier()
    data = lo.look(subject, list(EXAMPLES), [Sinks(threshold=0.05, effect=True)], progress=False)["sinks"].data
    change = data["loss_change"]
    assert set(change["change"].values.tolist()) == {"sink_value", "sink_key", "middle_value", "middle_key"}
    assert np.isfinite(change.values).all()
    assert (np.abs(change.values) > 0).all()
    none = lo.look(subject, list(EXAMPLES), [Sinks(threshold=0.999, effect=True)], progress=False)["sinks"].data
    assert int(none["loss_change_count"].sum()) == 0


def test_learnt_sinks_are_told_apart():
    import transformers as hf
    from tiny import loud, word_pieces

    config = hf.GptOssConfig(
        vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        num_local_experts=2, num_experts_per_tok=1, intermediate_size=16, max_position_embeddings=64,
    )  # fmt: skip
    model = loud(hf.GptOssForCausalLM, config)
    subject = lo.Subject(model, word_pieces(specials=False), name="tiny gpt-oss")
    data = lo.look(subject, list(EXAMPLES), ["sinks"], progress=False)["sinks"].data
    learnt = data["learnt"].values
    assert ((learnt > 0) & (learnt < 1)).all()
    assert "learnt" not in lo.look(MAKERS["gpt2"](), list(EXAMPLES), ["sinks"], progress=False)["sinks"].data


@pytest.mark.parametrize("options", [{"thresholds": ()}, {"thresholds": (1.5,)}, {"threshold": 0.0}])
def test_thresholds_are_shares(options):
    with pytest.raises(UserError, match="above 0 and below 1"):
        Sinks(**options)
