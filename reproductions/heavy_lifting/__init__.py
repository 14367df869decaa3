"""Do specialised heads do the heavy lifting? Gates against chance, and trained against from scratch, at equal steps."""

from reproductions.frame.study import Study

STUDY = Study(
    name="heavy_lifting",
    title="Do specialised heads do the heavy lifting?",
    question="If most heads of a translation model are removed, does it matter which? Are the heads that gates choose "
    "better than random heads of the same layers, than the most confident ones, and than those with the largest "
    "gradient? Is it better to prune a trained model than to train the small one from scratch? Do heads with a "
    "function remain?",
    headline=[
        "third-loses-little",
        "sixth-loses-little",
        "trained-over-scratch-24",
        "trained-over-scratch-12",
        "place-24",
        "place-12",
        "chance-24",
        "chance-12",
        "as-trained-24",
        "gates-over-confidence",
        "gradient-over-chance",
        "layers-24",
        "roles-needed",
    ],
    seeds=(0, 1, 2),
)
