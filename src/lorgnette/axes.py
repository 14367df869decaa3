"""The vocabulary of axes: what the dimensions of a result are called, everywhere."""

from collections.abc import Sequence
from typing import Final

STACK: Final = "stack"  # the stack: "encoder", "decoder" or "cross" (decoder queries, encoder keys)
LAYER: Final = "layer"  # layer of the stack, counted from 1 at the embeddings
HEAD: Final = "head"  # head of the layer, counted from 1; a removed head keeps the others' numbers
HEAD_A: Final = "head_a"  # one of two heads that are compared, as "layer-head"
HEAD_B: Final = "head_b"  # the other of two heads that are compared, as "layer-head"
QUERY: Final = "query"  # position of the query token, counted from 0
KEY: Final = "key"  # position of the key token, counted from 0
DIM: Final = "dim"  # component of a head's query, key, value or context vector
MODEL: Final = "model"  # component of the residual stream (the hidden size)
TEXT: Final = "text"  # text of the corpus, by its id
LABEL: Final = "label"  # class of the task, by name
CATEGORY: Final = "category"  # category of the key token: cls, sep, punctuation, period_comma, other, first, last
OFFSET: Final = "offset"  # key position minus query position: -1 the previous token, 0 itself, +1 the next
RELATION: Final = "relation"  # dependency relation, by its Universal Dependencies name
QUANTILE: Final = "quantile"  # quantile, between 0 and 1
# what measures attention to a token: "weights" (α), or "norms" (‖α f(x)‖); the score of an explanation
MEASURE: Final = "measure"
# attn_n: the heads added up; attn_res_n: with the residual; attn_res_ln_n: and through the norm
VARIANT: Final = "variant"
# mixing ratio by its terms: those of the variants, or weights (attn_w, attn_res_w), or another measure
RATIO: Final = "ratio"
# which decoder row speaks for a target word: "output" (the row that predicts it), "input" (that reads it)
READING: Final = "reading"
VECTORS: Final = "vectors"  # which vectors of a head: "query", "key" or "value"
STATE: Final = "state"  # hidden state of a stack: 0 the embeddings, then the output of each layer
DIRECTION: Final = "direction"  # class whose direction (a representative's, or the class mean's) is looked along
DIRECTION_B: Final = "direction_b"  # the other of two classes whose directions are compared
# own_nearest, other_nearest, own_farthest: texts of the class, or not of it, by cosine to the direction
NEIGHBOUR: Final = "neighbour"
RANK: Final = "rank"  # place in an order, counted from 1
# what replaces the output of an ablated head: zero ("zero"), or its mean over the corpus ("mean")
ABLATION: Final = "ablation"
ROLE: Final = "role"  # what a head may be for, by name: positional, syntactic, rare, special …
SIGNAL: Final = "signal"  # importance signal of a head, by name
SIGNAL_B: Final = "signal_b"  # the other of two signals that are compared
# to_head: the dependent's row peaks at its head; to_dependent: the head's row peaks at the dependent;
# read_by_head: of all rows, the head's gives the dependent most
WAY: Final = "way"
# part of the texts, by a hash of their ids: "development" (to choose on) or "held_out" (to test on)
PART: Final = "part"
BASELINE: Final = "baseline"  # baseline that does not use attention, by name
# input of a trained parser: attention, attention_vectors (with word vectors too), or vectors_distance
FEATURES: Final = "features"
CANDIDATES: Final = "candidates"  # "mentions": head words of earlier mentions; "words": all other words
KIND: Final = "kind"  # kind of mention by its head word: all, pronoun, proper, nominal
DECODING: Final = "decoding"  # "argmax": each word takes its most likely head; "tree": the best tree of all of them
PROBE: Final = "probe"  # what was trained on the frozen states: "linear", or "mlp" with one hidden layer
CIRCUIT: Final = "circuit"  # what attends to what (qk: W_Q W_Kᵀ), or what is written there (ov: W_V W_O)
THRESHOLD: Final = "threshold"  # share of a head's weight above which a token counts as a sink
# what was removed: the value or the key of the sink, or of the token in the middle of the text
CHANGE: Final = "change"
# what writes to the residual stream: vectors of tokens, of positions, the rest of the embeddings, heads, a layer's
# feed-forward part, biases
WRITER: Final = "writer"
# from a part that writes to the residual stream to one that reads it: "decoder 1-1 → decoder 2-1 key"
EDGE: Final = "edge"
CHOICE: Final = "choice"  # how edges were chosen: "strongest" by attribution, or "drawn" at random from the others
# term of the sum that a logit is: embeddings, heads, feed_forward, biases, remainder of the output head
TERM: Final = "term"
# synthetic test of a head: induction, duplicate, previous (repeated random tokens), retrieval (needle)
TEST: Final = "test"
LENGTH: Final = "length"  # tokens of the text around a needle
DEPTH: Final = "depth"  # where in the text the needle is, in percent
WINDOW: Final = "window"  # number of tokens up to the query, its own among them, that count as near
STEP: Final = "step"  # step of the training that a checkpoint was written at
SOURCE: Final = "source"  # part of a prompt, by name; over a corpus, "prompt: part"
SHARE: Final = "share"  # share of a stack's heads that is removed
DRAW: Final = "draw"  # random set of as many heads, counted from 1
PRESSURE: Final = "pressure"  # what gates were fitted under: none (no gates), free (no pressure), keep, or remove
# method that explains a prediction by its words; random, first and last use neither model nor words;
# xarray takes sel(method=…) for something else
METHOD: Final = "explanation"

METHOD_B: Final = "explanation_b"  # the other of two explanations that are compared

# Every per-head result starts with these, in this order.
PER_HEAD: Final = (STACK, LAYER, HEAD)

Selected = str | int | float | Sequence[str] | Sequence[int]
"""One label of an axis, or several: `category="cls"`, `layer=[1, 2]`."""
