"""Attention is not only a weight (Kobayashi et al. 2020), with residual and LayerNorm (2021), on other encoders."""

from itertools import product

from reproductions.frame.study import Study

STUDY = Study(
    name="kobayashi2020",
    title="Kobayashi et al. 2020: attention is not only a weight",
    question="A head's output is Σ_j α_ij f(x_j), and tokens with much weight may have short vectors f(x_j). How much "
    "does each token contribute?",
    headline=[
        f"{model}-{ending}"
        for ending, model in product(
            (
                "special-norm",
                "special-norm-centred",
                "sep-cancels",
                "sep-cancels-centred",
                "cls-cancels-centred",
            ),
            ("e5-small", "minilm", "mpnet"),
        )
    ],
    only="model",
    published_setting="BERT-base on the 992 segments that Clark et al. released "
    "(clark2019_segments/unlabeled_attn.pkl in the folder of data)",
)
