"""Against TransformerLens, where it is installed: logit lens, direct effects of heads, edges, exact path patching."""

from dataclasses import replace

import pytest
import torch
from tiny import tiny_model, tokenizer

import lorgnette as lo
from lorgnette.attending import Site
from lorgnette.explaining.edges import EdgeStream, StreamReader
from lorgnette.explaining.head_logits import HeadLogits, WrittenStates
from lorgnette.explaining.output_head import OutputHead, Predictions
from lorgnette.explaining.stream import Writer
from lorgnette.lens.edges.exact import Edge, patched
from lorgnette.subject import Subject

pytest.importorskip(
    "transformer_lens.model_bridge",
    reason="TransformerLens is not installed: `pip install --no-deps transformer-lens` and what it asks for",
)
pytestmark = pytest.mark.filterwarnings("ignore::Warning")

CLEAN, CORRUPT = "w10 w22 w35 w41 w60", "w11 w22 w36 w41 w61"
ANSWER, OTHER = 7, 12
EXACT = 1e-10
"""Largest difference in float64."""


class Goal:
    """The logit of one token behind the text, minus that of another."""

    def __init__(self, logits):
        pass

    def __call__(self, logits):
        return logits[:, -1, ANSWER] - logits[:, -1, OTHER]


def both(dtype):
    """A subject, and the bridge of TransformerLens to a model with the same weights."""
    from transformer_lens.model_bridge import TransformerBridge

    subject = Subject(tiny_model("gpt2", 0, dtype), tokenizer("gpt2"), name="tiny gpt2")
    bridge = TransformerBridge.boot_transformers(
        "gpt2", hf_model=tiny_model("gpt2", 0, dtype), tokenizer=tokenizer("gpt2"), dtype=dtype
    )
    bridge.eval()
    return subject, bridge


@pytest.fixture(scope="module")
def sides():
    """A subject, a clean and a corrupt text, and the bridge to the same model."""
    subject, bridge = both(torch.float32)
    return subject, *(subject.encode([text]) for text in (CLEAN, CORRUPT)), bridge


@pytest.fixture(scope="module")
def one_text():
    """A subject and a text in float64, the bridge, and its cache of the text."""
    subject, bridge = both(torch.float64)
    batch = subject.encode([CLEAN])
    with torch.no_grad():
        cache = bridge.run_with_cache(batch.inputs["input_ids"])[1]
    return subject, batch, bridge, cache


@torch.no_grad()
def test_every_row_of_the_logit_lens_is_the_same(one_text):
    """`accumulated_resid`, `ln_final` and `unembed`: all logits, the top tokens and their probabilities."""
    subject, batch, bridge, cache = one_text
    head, found = OutputHead(subject), lo.logit_lens(subject, CLEAN)
    mine = [head.logits(batch, Predictions.at(batch.source.mask).of(state)) for state in head.read(batch).states]
    theirs = [bridge.unembed(bridge.ln_final(state)) for state in cache.accumulated_resid(layer=-1)]
    for number, (own, other) in enumerate(zip(mine, theirs, strict=True)):
        torch.testing.assert_close(own, other, rtol=0, atol=EXACT)
        share, top = other[0].softmax(-1).max(-1)
        assert found.top[number].tolist() == top.tolist()
        torch.testing.assert_close(found.probability[number], share, rtol=0, atol=EXACT)


def added(bridge, cache):
    """What TransformerLens finds that each head adds to every logit: [head position token]."""
    with torch.no_grad():
        heads = cache.stack_head_results(layer=-1)
        normed = cache.apply_ln_to_stack(heads, layer=-1) * bridge.ln_final.weight  # its gain is not folded into W_U
        return (normed @ bridge.W_U)[:, 0]


def test_every_head_adds_the_same_to_all_logits(one_text):
    subject, batch, bridge, cache = one_text
    theirs = added(bridge, cache)
    written = WrittenStates(OutputHead(subject), batch)
    logits = HeadLogits(written, Predictions.at(batch.source.mask))
    mine = torch.stack([head[0] for site in written.sites for head in logits.heads(site)])
    assert float(theirs.abs().max()) > 1e-2
    torch.testing.assert_close(mine, theirs, rtol=0, atol=EXACT)


def test_the_direct_effects_of_heads_are_the_same(one_text):
    subject, batch, bridge, cache = one_text
    result = lo.look(subject, [CLEAN], ["effects:ablation=zero,total=false"], progress=False)["effects"]
    predicted = subject.run(batch).logits[0].argmax(-1)
    theirs = added(bridge, cache)[:, torch.arange(len(predicted)), predicted].mean(-1)
    mine = torch.tensor(result.data["direct"].values).flatten()
    assert float(theirs.abs().max()) > 1e-3
    torch.testing.assert_close(mine, theirs, rtol=0, atol=EXACT)


def measured(subject, clean, corrupt, sign):
    stream, other = (EdgeStream(subject, batch, Goal) for batch in (corrupt, clean))
    stream.pieces = [
        replace(piece, amount=sign * (towards.amount - piece.amount))
        for piece, towards in zip(stream.pieces, other.pieces, strict=True)
    ]
    return stream


def writer_of(node):
    if node.kind == "embed":
        return None
    if node.kind == "mlp_out":
        return Writer("feed_forward", "decoder", node.layer)
    return Writer("heads", "decoder", node.layer, node.head)


def reader_of(node):
    site = None if node.kind == "logits" else Site("decoder", "self", node.layer)
    ways = {"q_input": "query", "k_input": "key", "v_input": "value", "mlp_in": "feed_forward", "logits": "logits"}
    return StreamReader(ways[node.kind], site, node.head)


def test_every_edge_has_the_same_attribution(sides):
    from transformer_lens.tools.analysis import attribution_patching as theirs

    subject, clean, corrupt, bridge = sides
    stream = measured(subject, clean, corrupt, 1)
    mine = dict(stream.edges())
    ids = [batch.inputs["input_ids"] for batch in (clean, corrupt)]
    config = theirs.EdgeAttributionConfig(granularity="edge")
    scores = theirs.attribution_patch(bridge, *ids, lambda logits: Goal(None)(logits)[0], config).edge_scores
    found = {}
    for (writer, reader), score in scores.items():
        key = writer_of(writer), reader_of(reader)
        found[key] = found.get(key, 0.0) + float(score)
    largest = max(abs(score) for score in found.values())
    assert largest > 1e-3
    assert len(found) > 250
    for (writer, reader), score in found.items():
        if writer is None:
            own = sum(float(mine[reader][0, stream.place[Writer(kind, "decoder")]])
                      for kind in ("tokens", "positions", "embeddings"))  # fmt: skip
        else:
            own = float(mine[reader][0, stream.place[writer]])
        assert own == pytest.approx(score, abs=1e-5 * largest), (writer, reader)


@pytest.mark.parametrize("component", ["q", "k", "v"])
def test_exact_paths_are_the_same(sides, component):
    from transformer_lens.patching import get_act_patch_direct_path

    subject, clean, corrupt, bridge = sides
    ids = [batch.inputs["input_ids"] for batch in (clean, corrupt)]
    caches = [bridge.run_with_cache(each)[1] for each in ids]
    theirs = get_act_patch_direct_path(
        bridge, ids[1], *caches, lambda logits: Goal(None)(logits)[0], 0, 1, component, verbose=False
    )
    stream = measured(subject, clean, corrupt, -1)  # what is taken away is corrupt minus clean
    way = {"q": "query", "k": "key", "v": "value"}[component]
    places = [(layer, head) for layer in range(1, theirs.shape[0]) for head in range(theirs.shape[1])]
    edges = [
        Edge(Writer("heads", "decoder", 0, 1), StreamReader(way, Site("decoder", "self", layer), head))
        for layer, head in places
    ]
    value = float(stream.value)
    with torch.no_grad():
        changes = patched(stream, corrupt, Goal(None), edges)[0]
    assert float(changes.abs().max()) > 1e-4
    for (layer, head), change in zip(places, changes.tolist(), strict=True):
        assert value - change == pytest.approx(float(theirs[layer, head]), abs=1e-5)
