"""Is what a sink sends the same in every text? Its value is replaced by its mean over other texts, and by zero."""

from reproductions.frame.study import Study

STUDY = Study(
    name="sink_as_bias",
    title="Is a sink a bias?",
    question="Many heads give most of their weight to one token: [CLS], [SEP], </s>, or the first. Do they read the "
    "same vector there in every text, so that the sink acts as a bias, or does it carry information about the"
    " text?",
    headline=[
        "fifth-average",
        "word-average",
        "sink-over-word-average",
        "swap-average",
        "every-length-average",
        "fifth",
        "constant",
        "constant-word",
        "within-heads-centred",
        "either-sign-centred",
        "smollm2-loss-average",
    ],
    only="model",
)
