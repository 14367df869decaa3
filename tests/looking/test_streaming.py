"""Key heads that stream together: loops in float64, a planted circuit, the control, files as other tools read them."""

import json
import math
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from tiny import classifier, gpt2
from tiny import subject as tiny_subject

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.lens.context.lens import Context
from lorgnette.lens.context.together import COUNT, StreamedTogether
from lorgnette.lens.context.windowed import Stream

sys.path.insert(0, str(Path(__file__).parent.parent / "lens"))
sys.path.insert(0, str(Path(__file__).parent.parent / "planted"))
from copying import copying, vocabulary
from test_context import SINKS, TEXTS, WINDOW, Masked, losses


def test_progress_is_told_text_by_text():
    """The copies of a text take many passes, so a batch of many texts would say nothing for long."""
    words, batches = ("it", "a", "dog", "bad", "good", "very", "cat", "not", "slept"), []
    texts = [f"the cat sat on the mat . {word} ran" for word in words]
    for kind in (Context, StreamedTogether):
        finish = kind.finish
        batches.append([])

        def counting(self, batch, outputs, finish=finish, sizes=batches[-1]):
            sizes.append(len(batch.examples))
            return finish(self, batch, outputs)

        with patch.object(kind, "finish", counting):
            lo.stream(gpt2(), texts, sinks=1, window=2, draws=1, progress=False)
    assert set(batches[0]) == set(batches[1]) == {1}
    assert len(batches[1]) == len(texts)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("side", ["right", "left"])
@torch.no_grad()
def test_sets_together_equal_loops(kind, side):
    subject = gpt2() if kind == "gpt2" else tiny_subject("llama")
    subject.model.double()
    subject.tokenizer.padding_side = side
    first, second = (each.site for each in subject.anatomy.sites[:2])
    each = subject.anatomy.sites[0].heads // subject.anatomy.sites[0].groups
    sets = {2: [[(first, 0), (second, 1)], [(second, 0), (second, 1)], [(first, 1), (second, 0)]]}
    lens = StreamedTogether(Stream(SINKS, WINDOW), sets)
    data = lo.look(subject, TEXTS, [lens], progress=False)["together"].data
    wanted = []
    for example in TEXTS:
        ids = subject.encode([example]).inputs["input_ids"]
        intact = losses(subject, ids)
        if intact is None:
            continue
        row = []
        for heads in sets[2]:
            shared = [(own, group * each + number) for own, group in heads for number in range(each)]
            taps = [Masked(site.layer, [head for own, head in shared if own == site]) for site in (first, second)]
            with subject.tapped(*taps):
                row.append(losses(subject, ids) - intact)
        wanted.append((row[0], np.mean(row[1:])))
    wanted = np.array(wanted)
    assert int(data["loss_count"]) == len(wanted) >= 3
    np.testing.assert_allclose(data["change"].sel({COUNT: 2}).values, wanted.mean(0), atol=1e-10)
    gain = wanted[:, 1] - wanted[:, 0]
    assert float(data["under_random"].sel({COUNT: 2})) == pytest.approx(gain.mean(), abs=1e-10)
    error = gain.std(ddof=1) / math.sqrt(len(gain))
    assert float(data["under_random_se"].sel({COUNT: 2})) == pytest.approx(error, abs=1e-10)


def repeated(count=16):
    """Random words, then the same words again: what follows a word stands at least nine tokens before."""
    words = [word for word in vocabulary() if word.isalpha()]
    draw = random.Random(0)
    return [" ".join(2 * draw.sample(words, draw.randint(10, 14))) for _ in range(count)]


def test_all_but_the_head_that_copies_from_far_away_can_stream(tmp_path):
    found = lo.stream(copying(), repeated(), sinks=1, window=4, loss=0.01, progress=False)
    heads = found.to_dataframe()
    assert found.chosen == 3
    assert heads["kind"].tolist() == ["streaming"] * 3 + ["retrieval"]
    assert tuple(heads.iloc[-1][["layer", "key_head"]]) == (2, 1)
    assert abs(found.change.value) < 1e-3
    curve = found.curve().set_index("key_heads")
    assert curve.index.tolist() == [1, 2, 3, 4]
    assert curve.loc[4, "change"] > 1
    assert curve.loc[3, "under_random_low"] > 0.1  # a random set of three has the head three times in four
    assert found.saved(1000) == pytest.approx(3 / 4 * (1 - 5 / 1000))
    assert found.saved(5) == 0
    found.save(tmp_path / "pattern")
    pattern = np.loadtxt(tmp_path / "pattern" / "full_attention_heads.tsv", dtype=float, delimiter="\t")
    config = json.loads((tmp_path / "pattern" / "config.json").read_text())
    assert (config["sink_size"], config["recent_size"], config["sparsity"]) == (1, 4, 0.75)
    # DuoAttention lets stream what lies below the quantile, kvpress the lowest of them, both by key head.
    below = np.clip(pattern, 0, 1) < np.quantile(pattern, config["sparsity"])
    lowest = np.zeros_like(below)
    order = np.argsort(pattern, axis=None)[: round(pattern.size * config["sparsity"])]
    lowest[np.unravel_index(order, pattern.shape)] = True
    assert below.tolist() == lowest.tolist() == [[True, True], [False, True]]


def test_kvpress_lets_the_same_key_heads_stream(tmp_path):
    kvpress = pytest.importorskip(
        "kvpress", reason="kvpress is not installed: pip install --no-deps kvpress cachetools"
    )
    subject = tiny_subject("llama")
    found = lo.stream(
        subject, repeated(), sinks=1, window=4, loss=0.0, progress=False
    )  # kvpress has wrapped our kernel
    heads = found.to_dataframe()
    assert 0 < found.chosen < len(heads)
    folder = found.save(tmp_path / "pattern")
    config = json.loads((folder / "config.json").read_text())
    pattern = np.loadtxt(folder / "full_attention_heads.tsv", delimiter="\t")
    press = found.press()
    assert isinstance(press, kvpress.DuoAttentionPress)
    assert press.head_compression_ratio == config["sparsity"]
    assert (press.load_attention_pattern(None)[2] == pattern).all()
    with press(subject.model):
        pass
    assert (press.sink_size, press.recent_size) == (1, 4)
    chosen = heads[heads["kind"] == "streaming"]
    theirs = {(layer + 1, head + 1) for layer, head in press.streaming_mask.nonzero().tolist()}
    assert theirs == set(zip(chosen["layer"], chosen["key_head"], strict=True))


def test_a_press_needs_kvpress():
    """A class with the name and the argument of kvpress's; the test above uses kvpress itself, where it is."""
    found = lo.stream(copying(), repeated(8), sinks=1, window=4, loss=0.01, progress=False)
    made = SimpleNamespace(DuoAttentionPress=SimpleNamespace)
    with patch.dict(sys.modules, {"kvpress": made}):
        press = found.press()
    assert press.head_compression_ratio == found.chosen / 4
    sinks, window, pattern = press.load_attention_pattern(None)
    assert (sinks, window) == (1, 4)
    assert (pattern == found.pattern()).all()
    with patch.dict(sys.modules, {"kvpress": None}), pytest.raises(UserError, match="needs the package 'kvpress'"):
        found.press()


def test_the_page_has_the_figure_and_both_tables(tmp_path):
    found = lo.stream(copying(), repeated(8), sinks=1, window=4, loss=0.01, progress=False)
    page = found.page(tmp_path / "stream.html").read_text(encoding="utf-8")
    assert page.count("<table") == 2
    assert "retrieval" in page
    assert f"{found.chosen} of 4 key heads" in page
    spec = found.plot().chart.to_dict()
    assert "increase of the loss" in json.dumps(spec)


def test_in_the_control_no_choice_is_better_than_chance():
    found = lo.stream(copying(control=True), repeated(), sinks=1, window=4, progress=False)
    curve = found.curve()
    assert (curve["under_random_low"] <= 0).all()
    assert (curve["low"] <= 0).all()  # nothing far away helps a model of random weights


def test_nothing_streams_where_no_rise_is_allowed():
    """Letting every head of the circuit stream raises the loss; letting none costs nothing and saves nothing."""
    model = copying()
    found = lo.stream(model, repeated(8), sinks=0, window=1, loss=0.0, progress=False)
    assert found.saved(10**6) == pytest.approx(found.chosen / 4, abs=1e-5)
    assert found.chosen < 4


@pytest.mark.parametrize(
    ("subject", "texts", "options", "message"),
    [
        (classifier, ["the cat sat"] * 9, {}, "is not a causal language model"),
        (gpt2, ["the cat sat"] * 9, {}, "No text has more than 68 tokens"),
        (gpt2, ["the cat sat"], {}, "two of each are needed"),
        (gpt2, ["the cat sat"] * 9, {"window": 0}, "window must be a whole number of at least 1"),
        (gpt2, ["the cat sat"] * 9, {"loss": -1.0}, "loss must be a number of at least 0"),
    ],
)
def test_bad_input_is_one_line(subject, texts, options, message):
    with pytest.raises(UserError, match=message) as caught:
        lo.stream(subject(), texts, **options, progress=False)
    assert "\n" not in str(caught.value)


def test_losses_of_groups_alone():
    """`losses="shared"` gives the same numbers of key heads without those of single heads."""
    subject = tiny_subject("llama")
    options = {"sinks": SINKS, "window": WINDOW, "windows": (WINDOW,)}
    whole, part = (
        lo.look(subject, TEXTS, [lo.lens.get("context", losses=losses, **options)], progress=False)["context"].data
        for losses in (True, "shared")
    )
    assert "loss_change" not in part
    np.testing.assert_allclose(part["shared_change"], whole["shared_change"], atol=1e-6)
