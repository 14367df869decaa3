"""A trace as a document for the browser: √α in one byte each and deflated, norms per token, never lists of floats.

A weight is kept as b = round(255 √α), so α = (b / 255)² is right to 0.004 where it is near one and to 0.00001 where it
is near zero: what an eye can tell on the root scale that the views use. The norm of what a token sends is
‖α f(x)‖ = α ‖f(x)‖ (Kobayashi et al. 2020), so one ‖f(x)‖ per token and head is enough for all pairs.
"""

import base64
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette.attending import Call
from lorgnette.errors import UserError
from lorgnette.models.anatomy import AttentionSite
from lorgnette.reporting.overlay import as_data, ground_of
from lorgnette.subject.trace import Trace, require_room
from lorgnette.texts.batch import Tokens
from lorgnette.texts.readable import readable
from lorgnette.types import Json

FORMAT, VERSION = "lorgnette-view", 1
PACKED = 6
"""Bytes that a weight takes while it is packed: its byte, deflated as base64 and in the text of the page."""
INSTEAD = "Shorten the text, or print one head (--layer and --head without --html)."
Relevance = Mapping[str, Float[Tensor, " token"]]


def pack(
    trace: Trace,
    *,
    relevance: Relevance | None = None,
    induced: Int[np.ndarray, "layer head word"] | None = None,
    norms: bool = True,
) -> Json:
    """One text as a document for the views.

    `relevance` gives each method's value per source piece; `induced` the 1-based head of each word (0: root) in the
    tree of each attention head of the first stack. The gold tree and the rationale come with the trace's example.
    """
    only = trace.stacks[0] if len(trace.stacks) == 1 else None
    require_room(trace.subject, trace.batch, PACKED, "a page of them", only, instead=INSTEAD)
    sides: list[Tokens] = []
    norms = norms and trace.subject.anatomy.knows("output")
    stacks = [_stack(trace, name, sides, norms) for name in trace.stacks]
    example = trace.example
    source = _place(trace.batch.source, sides)
    return {
        "format": FORMAT,
        "version": VERSION,
        "model": trace.subject.name,
        "text": example.text,
        "pair": example.pair,
        "target": example.target,
        "cut": trace.is_cut,
        "attending": trace.subject.attending,
        "generated": None if trace.generated is None else trace.generated.to_dict(),
        "prediction": prediction(trace),
        "stacks": stacks,
        "explanations": explanations(trace, relevance or {}, source),
        "rationale": None if example.rationale is None else list(example.rationale),
        "trees": _trees(trace, induced),
        "pictures": pictures(trace, source),
        "sides": [_side(tokens) for tokens in sides],
    }


def prediction(trace: Trace) -> Json | None:
    """What a classifier says of the text, by class; of a language model, the likeliest next pieces."""
    shares = trace.probabilities
    if shares is not None:
        return {"what": "Classes", "labels": list(shares), "shares": [float(share) for share in shares.values()]}
    logits = getattr(trace.output, "logits", None)
    if not trace.subject.anatomy.causal or logits is None or logits.dim() != 3:
        return None
    best = logits[0, -1].float().softmax(-1).topk(6)
    labels = [readable(trace.subject.tokenizer.decode([number])) for number in best.indices.tolist()]
    return {"what": "Next piece", "labels": labels, "shares": best.values.tolist()}


def explanations(trace: Trace, relevance: Relevance, side: int = 0) -> list[Json]:
    """Each method's value per piece of the source; signed if a value is below zero."""
    count, out = len(trace.batch.source.pieces[0]), []
    for method, values in relevance.items():
        array = values.detach().cpu().float().numpy()
        if array.shape != (count,):
            raise UserError(f"The relevance by {method!r} has shape {array.shape}: expected ({count},), one per piece.")
        signed = bool((array < 0).any())
        out.append({"method": method, "side": side, "signed": signed, "values": floats(array)})
    return out


def pictures(trace: Trace, side: int = 0) -> list[Json]:
    """The picture of the text, tile by tile as the model saw it, and which piece stands for each of its places."""
    tokens = trace.batch.source
    if tokens.patches is None:
        return []
    piece = (tokens.mask[0].cumsum(-1) - 1).double().cpu()  # of each position, its number among the pieces
    out = []
    for number, place in enumerate(tokens.patches.tables()):
        table = np.nan_to_num(tokens.patches.pictures(piece)[number], nan=-1).astype(int)
        ground = ground_of(trace.batch, processor=trace.subject.processor, table=number)
        image = None if ground is None else as_data(ground)
        where = {"tile": place[0], "frame": place[1], "rows": table.shape[0], "columns": table.shape[1]}
        size = None if ground is None else list(ground.size)
        out.append({"side": side, **where, "image": image, "size": size, "pieces": table.ravel().tolist()})
    return out


def deflated(array: np.ndarray) -> str:
    """Bytes of an array, deflated (the zlib format, which browsers read), as base64."""
    # Attention has few long repeats: the strategy for noisy data is smaller and faster here than the default.
    squeeze = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_FILTERED)
    return base64.b64encode(squeeze.compress(np.ascontiguousarray(array).tobytes()) + squeeze.flush()).decode()


def floats(array: np.ndarray) -> Json:
    """An array as 32-bit floats, little-endian."""
    return {"shape": list(array.shape), "data": deflated(array.astype("<f4"))}


def root_bytes(weights: Float[Tensor, "*rest"]) -> np.ndarray:
    """round(255 √α)."""
    return np.rint(255 * np.sqrt(weights.detach().cpu().float().clamp(0, 1).numpy())).astype(np.uint8)


def _stack(trace: Trace, name: str, sides: list[Tokens], norms: bool) -> Json:
    """One stack under the original numbers of its layers and heads; what was removed is zero, and named in `gone`."""
    calls = [(trace.subject.anatomy[site], call) for site, call in trace.calls.items() if site.name == name]
    layers, heads = (
        1 + max(attention.site.layer for attention, _ in calls),
        max(attention.total for attention, _ in calls),
    )
    queries, keys = trace.tokens(name)
    shape = (len(queries.pieces[0]), len(keys.pieces[0]))
    weights = np.zeros((layers, heads, *shape), np.uint8)
    lengths = np.zeros((layers, heads, shape[1]), np.float32)
    entropy, moved = np.zeros((2, layers, heads), np.float32)
    present = np.zeros((layers, heads), bool)
    for attention, call in calls:
        at = attention.site.layer, list(attention.numbers)
        with torch.no_grad():
            matrix = call.block()[0]
        present[at], weights[at], entropy[at] = True, root_bytes(matrix), _entropy(call)
        if norms:
            lengths[at] = _norms(attention, call)
            moved[at] = (matrix.cpu().float().sum(1).numpy() * lengths[at]).sum(-1)
    return {
        "name": name,
        "layers": layers,
        "heads": heads,
        "gone": [[int(layer), int(head)] for layer, head in np.argwhere(~present)],
        "queries": _place(queries, sides),
        "keys": _place(keys, sides),
        "weights": [deflated(layer) for layer in weights],
        "entropy": floats(entropy),
        "norms": floats(lengths) if norms else None,
        "moved": floats(moved) if norms else None,
    }


def _norms(attention: AttentionSite, call: Call) -> Float[np.ndarray, "head key"]:
    """‖f^h(x_j)‖: how long a value is after the output projection."""
    value = call.value.detach()
    value = value.to(torch.promote_types(value.dtype, torch.float32))
    # One text is short: its transformed values cost less than the products that many texts would share.
    return (value[0] @ attention.output_weights()[0].detach().to(value.dtype)).norm(dim=-1).cpu().float().numpy()


def _entropy(call: Call) -> Float[np.ndarray, " head"]:
    """Entropy in nats, mean over the queries."""
    return call.entropy()[0].mean(-1).detach().cpu().float().numpy()


def _place(tokens: Tokens, sides: list[Tokens]) -> int:
    """Number of a side, each packed once."""
    for number, other in enumerate(sides):
        if other is tokens:
            return number
    sides.append(tokens)
    return len(sides) - 1


def _side(tokens: Tokens) -> Json:
    """Pieces, words (special tokens are words of their own), the word of each piece, the number of each word."""
    units = tokens.units()
    numbers = {"word": units.number.tolist(), "index": list(units.index)}
    words, pieces = [readable(label) for label in units.labels], list(tokens.shown())
    if tokens.patches is not None:
        for piece, name in tokens.patches.names(tokens.mask).items():
            pieces[piece] = words[int(units.number[piece])] = name
    return {"pieces": pieces, "words": words, **numbers, "parts": tokens.part_names()}


def _trees(trace: Trace, induced: "np.ndarray | None") -> Json | None:
    """The gold tree, if the example has one, and the trees of the heads, if they were given."""
    example = trace.example
    if induced is None and example.heads is None:
        return None
    words: Sequence[str] = trace.batch.source.word_labels()
    if induced is not None and induced.shape[-1] != len(words):
        raise UserError(f"The trees have {induced.shape[-1]} words, the text {len(words)}.")
    gold = example.heads is not None and len(example.heads) == len(words)
    return {
        "stack": trace.stacks[0],
        "words": list(words),
        "gold": list(example.heads) if gold and example.heads is not None else None,
        "relations": list(example.relations) if gold and example.relations is not None else None,
        "induced": None if induced is None else {"shape": list(induced.shape), "data": deflated(induced.astype("<i2"))},
    }
