"""The vocabulary of axes: what the dimensions of a result are called, everywhere."""

from collections.abc import Sequence
from typing import Final

STACK: Final = "stack"
LAYER: Final = "layer"
HEAD: Final = "head"
HEAD_A: Final = "head_a"
HEAD_B: Final = "head_b"
QUERY: Final = "query"
KEY: Final = "key"
TOKEN: Final = "token"
WORD: Final = "word"
DIM: Final = "dim"
MODEL: Final = "model"
TEXT: Final = "text"
LABEL: Final = "label"
CATEGORY: Final = "category"
OFFSET: Final = "offset"
RELATION: Final = "relation"
TAG: Final = "tag"
BIN: Final = "bin"
QUANTILE: Final = "quantile"
MEASURE: Final = "measure"
VARIANT: Final = "variant"
RATIO: Final = "ratio"
READING: Final = "reading"
VECTORS: Final = "vectors"
STATE: Final = "state"
DIRECTION: Final = "direction"
DIRECTION_B: Final = "direction_b"
NEIGHBOUR: Final = "neighbour"
RANK: Final = "rank"
ABLATION: Final = "ablation"
ROLE: Final = "role"
SIGNAL: Final = "signal"
SIGNAL_B: Final = "signal_b"
WAY: Final = "way"
PART: Final = "part"
BASELINE: Final = "baseline"
FEATURES: Final = "features"
CANDIDATES: Final = "candidates"
KIND: Final = "kind"
DECODING: Final = "decoding"
PROBE: Final = "probe"
CIRCUIT: Final = "circuit"
THRESHOLD: Final = "threshold"
CHANGE: Final = "change"
TERM: Final = "term"
TEST: Final = "test"
LENGTH: Final = "length"
DEPTH: Final = "depth"
STEP: Final = "step"
SHARE: Final = "share"
PRESSURE: Final = "pressure"
METHOD: Final = "explanation"  # xarray takes sel(method=…) for something else

DESCRIPTION: Final[dict[str, str]] = {
    STACK: 'the stack: "encoder", "decoder" or "cross" (decoder queries, encoder keys)',
    LAYER: "layer of the stack, counted from 1 at the embeddings",
    HEAD: "head of the layer, counted from 1; a removed head keeps the others' numbers",
    HEAD_A: 'one of two heads that are compared, as "layer-head"',
    HEAD_B: 'the other of two heads that are compared, as "layer-head"',
    QUERY: "position of the query token, counted from 0",
    KEY: "position of the key token, counted from 0",
    TOKEN: "position of a token, counted from 0, special tokens included",
    WORD: "position of a word, counted from 0, without specials",
    DIM: "component of a head's query, key, value or context vector",
    MODEL: "component of the residual stream (the hidden size)",
    TEXT: "text of the corpus, by its id",
    LABEL: "class of the task, by name",
    CATEGORY: "category of the key token: cls, sep, punctuation, period_comma, other, first, last",
    OFFSET: "key position minus query position: -1 the previous token, 0 itself, +1 the next",
    RELATION: "dependency relation, by its Universal Dependencies name",
    TAG: "part of speech, chunk or entity tag, by name",
    BIN: "bin of a histogram, by its middle",
    QUANTILE: "quantile, between 0 and 1",
    VARIANT: "attn_n: the heads added up; attn_res_n: with the residual; attn_res_ln_n: and through the norm",
    RATIO: "mixing ratio by its terms: those of the variants, or weights (attn_w, attn_res_w), or another measure",
    MEASURE: 'what measures attention to a token: "weights" (α), or "norms" (‖α f(x)‖); '
    "for explanations, the score of an explanation",
    METHOD: "method that explains a prediction by its words; random, first and last use neither model nor words",
    VECTORS: 'which vectors of a head: "query", "key" or "value"',
    STATE: "hidden state of a stack: 0 the embeddings, then the output of each layer",
    DIRECTION: "class whose direction (a representative's, or the class mean's) is looked along",
    DIRECTION_B: "the other of two classes whose directions are compared",
    NEIGHBOUR: "own_nearest, other_nearest, own_farthest: texts of the class, or not of it, by cosine to the direction",
    RANK: "place in an order, counted from 1",
    ABLATION: 'what replaces the output of an ablated head: zero ("zero"), or its mean over the corpus ("mean")',
    ROLE: "what a head may be for, by name: positional, syntactic, rare, special …",
    SIGNAL: "importance signal of a head, by name",
    SIGNAL_B: "the other of two signals that are compared",
    WAY: "to_head: the dependent's row peaks at its head; to_dependent: the head's row peaks at the dependent; "
    "read_by_head: of all rows, the head's gives the dependent most",
    CIRCUIT: "what attends to what (qk: W_Q W_Kᵀ), or what is written there (ov: W_V W_O)",
    THRESHOLD: "share of a head's weight above which a token counts as a sink",
    CHANGE: "what was removed: the value or the key of the sink, or of the token in the middle of the text",
    SHARE: "share of a stack's heads that is removed",
    TEST: "synthetic test of a head: induction, duplicate, previous (repeated random tokens), retrieval (needle)",
    LENGTH: "tokens of the text around a needle",
    DEPTH: "where in the text the needle is, in percent",
    TERM: "term of the sum that a logit is: embeddings, heads, feed_forward, biases, remainder of the output head",
    PRESSURE: "what gates were fitted under: none (no gates), free (no pressure), keep, or remove",
    STEP: "step of the training that a checkpoint was written at",
    PROBE: 'what was trained on the frozen states: "linear", or "mlp" with one hidden layer',
    CANDIDATES: '"mentions": head words of earlier mentions; "words": all other words',
    KIND: "kind of mention by its head word: all, pronoun, proper, nominal",
    FEATURES: "input of a trained parser: attention, attention_vectors (with word vectors too), or vectors_distance",
    DECODING: '"argmax": each word takes its most likely head; "tree": the best tree of all of them',
    BASELINE: "baseline that does not use attention, by name",
    PART: 'part of the texts, by a hash of their ids: "development" (to choose on) or "held_out" (to test on)',
    READING: 'which decoder row speaks for a target word: "output" (the row that predicts it), "input" (that reads it)',
}

# Every per-head result starts with these, in this order.
PER_HEAD: Final = (STACK, LAYER, HEAD)

Selected = str | int | float | Sequence[str] | Sequence[int]
"""One label of an axis, or several: `category="cls"`, `layer=[1, 2]`."""
