"""Raganato & Tiedemann 2018: encoders of translation models, their trees, their patterns, what each layer knows."""

from reproductions.frame.study import Study

STUDY = Study(
    name="raganato2018",
    title="Raganato & Tiedemann 2018: what do encoders of translation models know?",
    question="What does the encoder of a translation model know of its sentence: do its heads hold dependency trees, "
    "do they follow a few patterns, and which layer knows parts of speech, chunks, entities, meaning?",
    answer="Heads of opus-mt hold more of the tree than published, in the upper layers too; the four patterns are "
    "there, but not in small models; layers differ too little to say which knows most.",
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
