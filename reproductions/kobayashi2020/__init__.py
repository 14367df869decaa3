"""Attention is not only a weight (Kobayashi et al. 2020), with residual and LayerNorm (2021), on other encoders."""

from itertools import product

from reproductions.frame.study import Study

STUDY = Study(
    name="kobayashi2020",
    title="Attention is not only a weight: norms of what heads read",
    question="A head's output is Σ_j α_ij f(x_j), and tokens that get much weight may have short vectors f(x_j). How "
    "much of what the weights show arrives?",
    answer="Most weight on special tokens is cancelled by short vectors, as in BERT, but largely between layers and "
    "hardly within one; a layer keeps about four fifths of a token.",
    headline=[
        f"{model}-{ending}"
        for ending, model in product(
            (
                "special-weight",
                "special-norm",
                "sink-cancels",
                "sink-cancels-within-layers",
                "frequent-discounted",
                "keeps-more-than-it-mixes",
                "cancelling-needs-order",
            ),
            ("e5-small", "minilm"),
        )
    ],
    only="model",
)
