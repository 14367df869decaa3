"""Raganato & Tiedemann 2018: encoders of translation models, their trees, their patterns, what each layer knows."""

from reproductions.frame.study import Study

STUDY = Study(
    name="raganato2018",
    title="Raganato & Tiedemann 2018: what do encoders of translation models encode?",
    question="What does the encoder of a translation model encode: do its heads encode dependency trees, do they "
    "follow a few patterns, and which layers encode parts of speech, chunks, entities and meaning?",
    headline=(
        "trees-en-average-like-previous",
        "trees-en-best-like-next",
        "trees-en-early-layers",
        "trees-en-over-random",
        "trees-fr-best-like-next",
        "pattern-en-self",
        "pattern-en-previous",
        "pattern-en-next",
        "pattern-en-last",
        "small-previous",
        "small-last",
        "probe-upos-layers",
        "probe-chunk-layers",
        "probe-entity-layers",
        "probe-etype-layers",
    ),
    only="model",
)
