"""Is what a sink sends the same in every text? Its value is replaced by its mean over other texts, and by zero."""

from reproductions.frame.study import Study

STUDY = Study(
    name="sink_as_bias",
    title="Is a sink a bias?",
    question="Many heads give most of their weight to one token: [CLS], [SEP], </s>, or the first. Is what they read "
    "there the same in every text, so that the sink acts as a bias, or does it say something about the text?",
    headline=[
        "fifth",
        "fifth-average",
        "word",
        "sink-over-word",
        "swap",
        "every-length",
        "constant",
        "constant-word",
        "within-heads",
        "within-heads-centred",
        "either-sign",
        "smollm2-loss",
    ],
    only="model",
)
