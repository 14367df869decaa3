"""Everything that the views show of one text: one pass, explanations, trees, and what changes without some heads."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette.attending import Tap
from lorgnette.attending.words import to_words
from lorgnette.explaining import Next, Target, class_number, explain
from lorgnette.explaining.target import named
from lorgnette.reporting.views.pack import INSTEAD, Relevance, explanations, pack, prediction
from lorgnette.subject import Subject
from lorgnette.subject.effect import Effect
from lorgnette.subject.generation import Generation, traced
from lorgnette.subject.knockout import Head, Knockout, head_names, heads_at
from lorgnette.subject.trace import GRADIENT, Trace, require_room
from lorgnette.syntax.arborescence import free_trees, rooted_trees
from lorgnette.texts.example import Example
from lorgnette.types import Json

METHODS = ("attnlrp", "gradient_x_input")
"""What is computed unless something else is asked for: one backward pass each."""
LONGEST_TREE = 80  # words; the trees of all heads of a longer text take seconds


def gathered(
    subject: Subject,
    example: Example,
    *,
    methods: Sequence[str] | None = None,
    without: Iterable[Head] = (),
    target: str | Next | None = None,
    trees: bool = True,
    generate: int | Generation | None = None,
) -> Json:
    """One text as a document for the views; `without` names heads to be switched off, whose effect comes along.

    `target` is the class to explain (None: the one that is predicted). A model without logits (an encoder alone) has
    nothing to explain: by default it gets no relevance. `generate` lets a language model go on with the text.
    """
    trace = traced(subject, example, how=generate)
    return document_of(trace, methods=methods, without=without, target=target, trees=trees)


def document_of(
    trace: Trace,
    *,
    methods: Sequence[str] | None = None,
    without: Iterable[Head] = (),
    target: str | Next | None = None,
    trees: bool = True,
) -> Json:
    """The document of an existing trace."""
    chosen, wanted = methods_of(trace, methods), target_of(trace, target)
    induced = induced_trees(trace) if trees else None
    document = pack(trace, relevance=relevance(trace, chosen, target=wanted), induced=induced)
    off = list(without)
    return {
        **document,
        "explained": _explained(trace, wanted) if chosen else None,
        "without": knocked_out(trace, off, chosen, target=wanted) if off else None,
    }


def target_of(trace: Trace, name: str | Next | None) -> Target:
    """What is to be explained: the class of that name, what is said next, or what the trace shows to be predicted."""
    if isinstance(name, Next):
        return name
    if name is not None:
        return class_number(trace.subject, name)
    logits = getattr(trace.output, "logits", None)
    return None if logits is None else logits.argmax(-1)


def _explained(trace: Trace, target: Target) -> str:
    return named(trace.subject, trace.batch, trace.output.logits, target)[0]


def methods_of(trace: Trace, methods: Sequence[str] | None) -> tuple[str, ...]:
    """The methods to use: those asked for, or the default where there is something to explain."""
    if methods is not None:
        return tuple(dict.fromkeys(methods))
    return METHODS if getattr(trace.output, "logits", None) is not None else ()


def relevance(trace: Trace, methods: Sequence[str], *taps: Tap, target: Target) -> Relevance:
    """Each method's value per source piece, for the target, with further taps in place."""
    out = {}
    if methods:
        require_room(trace.subject, trace.batch, GRADIENT, "explaining with all of them", instead=INSTEAD)
    for method in methods:
        with trace.subject.tapped(*taps):
            out[method] = explain(trace.subject, trace.batch, method, target).tokens[0].detach()
    return out


def knocked_out(trace: Trace, heads: Sequence[Head], methods: Sequence[str], *, target: Target) -> Json:
    """What the model says without these heads, the relevance for the same prediction, and how far the output moved.

    Moved: 1 − cosine of the last states, mean over tokens.
    """
    subject = trace.subject
    heads_by_site = heads_at(subject, heads)
    tap = Knockout(heads_by_site)
    after = replace(Trace.over(subject, trace.batch, tap), is_cut=trace.is_cut)
    effect = Effect.between(trace, after, head_names(subject, heads_by_site))
    return {
        "off": [
            [site.name, site.layer, subject.anatomy[site].numbers[head]]
            for site, indices in heads_by_site.items()
            for head in indices
        ],
        "prediction": prediction(after),
        "explanations": explanations(trace, relevance(trace, methods, tap, target=target)),
        "moved": effect.shift,
    }


def induced_trees(trace: Trace) -> Int[np.ndarray, "layer head word"] | None:
    """The best tree of each head's attention between words, rooted where the gold tree is, or else anywhere.

    Heads are numbered from 1, 0 is the root. None where the first stack is no self-attention over the source's words,
    for a long text, and where a word has no piece.
    """
    tokens = trace.batch.source
    words, site = len(tokens.words[0]), next(iter(trace.calls))
    if trace.tokens(trace.stacks[0])[0] is not tokens or site.kind != "self" or not 2 <= words <= LONGEST_TREE:
        return None
    number, word = tokens.units().number, tokens.word[0]
    inner = number[word >= 0].unique()
    if len(inner) != words or bool((tokens.word[0][tokens.word[0] >= 0].diff() < 0).any()):
        return None
    # Heads that were removed read nothing: their trees are drawn nowhere.
    matrix = trace[f"{trace.stacks[0]}.weights"].nan_to_num(0.0)
    weights = to_words(matrix, number, number)[..., inner, :][..., inner]
    return _trees(weights.detach().cpu().double(), trace.example.heads)


def _trees(
    weights: Float[Tensor, "layer head dependent governor"], gold: tuple[int, ...] | None
) -> Int[np.ndarray, "layer head word"]:
    graphs = weights.flatten(0, 1).numpy()
    rooted = gold is not None and len(gold) == weights.shape[-1] and 0 in gold
    heads = rooted_trees(graphs, gold.index(0)) if rooted and gold is not None else free_trees(graphs)
    return (heads + 1).reshape(*weights.shape[:2], -1)
