"""Does the share of the heads that goes decide whether the gradient or fitted gates are the better guide?"""

from reproductions.frame.study import Study

STUDY = Study(
    name="share_decides",
    title="Does the share of the heads that goes decide which signal is best?",
    question="In which_signal the gradient of a gate seemed the better guide when a quarter of the heads is removed, "
    "and gates fitted together when three quarters are. We read that off the results. Does it hold in models "
    "that the study did not use?",
    headline=["quarter", "three-quarters", "crossing", "length-near", "length-jointly", "length-three-quarters"],
    seeds=(0, 1, 2),
    only="model",
)
