"""Which head signal to trust: does a cheap number rank the heads as their removal does, singly and together?"""

from reproductions.frame.study import Study

STUDY = Study(
    name="which_signal",
    title="Which signal of a head's importance can you trust?",
    question="Removing each head is the direct test of its importance, and costs a pass per head. Which cheaper signal"
    " ranks heads as their removal does, one at a time and when many are removed together?",
    headline=[
        "facilitation-jointly",
        "gradient-jointly",
        "output-length-jointly",
        "facilitation-over-output-length-jointly",
        "gradient-over-output-length-jointly",
        "facilitation-over-gradient-jointly",
        "ablation-over-gradient-jointly",
        "confidence-jointly",
        "norm-jointly",
        "slope-classifiers-jointly",
        "sharpness-classifiers-jointly",
        "gradient-positive",
        "gradient-over-confidence",
        "gradient-over-norm",
        "confidence-decoder",
    ],
    seeds=(0, 1),
    only="model",
)
