"""Anisotropy or failed optimisation: are values similar because a model is wide, or because it learnt little?"""

from reproductions.frame.study import Study

STUDY = Study(
    name="anisotropy_or_training",
    title="Are the values of deep attention similar because the model is wide, or because it learnt little?",
    question="Deep pure-attention models were published with values that all point the same way (SIM above .9). Ours "
    "had such values only where they were as wide as published, and these models had also learnt less. Is it "
    "the width or the training?",
    headline=[
        "last-hatexplain-values",
        "last-yelphat-values",
        "learnt-less-hatexplain",
        "learnt-less-yelphat",
        "gentle-random-300-hatexplain",
        "gentle-random-300-yelphat",
        "gentle-padded-300-hatexplain",
        "gentle-padded-300-yelphat",
        "width-hatexplain",
        "width-yelphat",
        "fast-hatexplain",
        "fast-yelphat",
        "width-gently-hatexplain",
        "width-gently-yelphat",
    ],
    seeds=(0, 1, 2, 3, 4),
    only="corpus",
)
