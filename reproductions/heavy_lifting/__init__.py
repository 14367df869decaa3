"""Do specialised heads do the heavy lifting? Gates against chance, and trained against from scratch, at equal steps."""

from reproductions.frame.study import Study

STUDY = Study(
    name="heavy_lifting",
    title="Do specialised heads do the heavy lifting?",
    question="If most heads of a translation model go, does it matter which? Are heads that gates choose better than "
    "random ones of the same layers, and than those with the sharpest attention or the largest gradient? Do heads with "
    "a role remain?",
    answer="How many heads remain in each layer matters; which ones hardly does. The model that learns "
    "while its gates close is better than all 30 random sets trained as long, but loses three BLEU with a third of its "
    "heads. No encoder head has one of the paper's roles. From scratch: not run.",
    headline=[
        "third-loses-little",
        "sixth-loses-little",
        "as-trained-24",
        "as-trained-12",
        "cut-24",
        "cut-12",
        "cut-gates-over-confidence",
        "cut-gates-over-gradient",
        "cut-confidence-over-chance",
        "cut-gradient-over-chance",
        "layers-24",
        "layers-12",
        "roles-remain",
        "roles-needed",
    ],
    seeds=(0, 1, 2),
)
