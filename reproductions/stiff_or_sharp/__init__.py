"""Stiff values or sharp attention: which of the two costs the explanation, and does one need the other?"""

from reproductions.frame.study import Study

STUDY = Study(
    name="stiff_or_sharp",
    title="Stiff values or sharp attention?",
    question="A penalty that sharpens attention also makes the values more similar, so comparing penalties cannot "
    "separate the two effects. What does each do when the other is held fixed?",
    headline=[
        f"{claim}-{corpus}"
        for claim in ("penalty", "gauge-penalty", "gauge-stiffening", "sharpness-auprc", "stiffness-auprc")
        for corpus in ("hatexplain", "yelphat", "esnli")
    ],
    seeds=(0, 1, 2, 3, 4),
    only="corpus",
)
