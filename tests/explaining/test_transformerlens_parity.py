"""Edges and exact path patching against TransformerLens, where it is installed (pip install transformer-lens)."""

from dataclasses import replace

import pytest
import torch
from tiny import tiny_model, tokenizer

from lorgnette.attending import Site
from lorgnette.explaining.edges import EdgeStream, StreamReader
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


class Goal:
    """The logit of one token behind the text, minus that of another."""

    def __init__(self, logits):
        pass

    def __call__(self, logits):
        return logits[:, -1, ANSWER] - logits[:, -1, OTHER]


@pytest.fixture(scope="module")
def sides():
    """A subject, a clean and a corrupt text, and the bridge of TransformerLens to the same model."""
    from transformer_lens.model_bridge import TransformerBridge

    model = tiny_model("gpt2", 0, torch.float32)
    subject = Subject(model, tokenizer("gpt2"), name="tiny gpt2")
    clean, corrupt = (subject.encode([text]) for text in (CLEAN, CORRUPT))
    bridge = TransformerBridge.boot_transformers("gpt2", hf_model=tiny_model("gpt2", 0, torch.float32),
                                                 tokenizer=tokenizer("gpt2"))  # fmt: skip
    bridge.eval()
    return subject, clean, corrupt, bridge


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
