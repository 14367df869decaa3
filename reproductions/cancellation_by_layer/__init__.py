"""Is the cancelling of weight and norm a matter of single heads, or does it arise when layers are pooled?"""

from reproductions.frame.study import Study

STUDY = Study(
    name="cancellation_by_layer",
    title="Do weight and norm cancel out within a head, or only across layers?",
    question="Over all layers and heads together, tokens that get much weight have short vectors: weight and norm "
    "cancel out. Is that so within a layer and within a head, or is it Simpson's paradox? Does it depend on the "
    "length of the text, and what happens when the value of the sink is set to zero?",
    headline=[
        "pooled",
        "within-heads",
        "paradox",
        "layers-carry",
        "relative",
        "longer",
        "punctuation",
        "punctuation-within-heads",
        "sink-changes-more",
        "less-than-weight",
        "norm-foretells",
        "smollm2-135m-loss",
        "opus-mt-en-fr-loss",
        "opus-mt-fr-en-loss",
    ],
    only="model",
)
