"""Do specialised heads do the heavy lifting? Gates against chance, and trained against from scratch, at equal steps."""

from reproductions.frame.study import Study

STUDY = Study(
    name="heavy_lifting",
    title="Do specialised heads do the heavy lifting?",
    question="If most heads of a translation model go, does it matter which? Are heads that gates choose better than "
    "random ones of the same layers, and than those with the sharpest attention or the largest gradient? Is it better "
    "to prune a trained model than to train the small one from scratch? Do heads with a role remain?",
    answer="How many heads remain in each layer matters; which ones matters little, and three seeds do not decide it. "
    "At equal steps, the same heads trained from scratch are better than the pruned model, by 1.7 BLEU with a third of "
    "the heads and 3.6 with a sixth: the opposite of what is published. Closing heads while the model learns is better "
    "than cutting them at once. No encoder head has one of the paper's roles.",
    headline=[
        "third-loses-little",
        "sixth-loses-little",
        "trained-over-scratch-24",
        "trained-over-scratch-12",
        "as-trained-24",
        "as-trained-12",
        "chance-24",
        "chance-12",
        "gates-over-confidence",
        "gates-over-gradient",
        "confidence-over-chance",
        "gradient-over-chance",
        "layers-24",
        "layers-12",
        "roles-needed",
    ],
    seeds=(0, 1, 2),
)
