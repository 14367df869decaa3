"""Do norms align words better than weights do? Hand-made alignments, two translation models, places chosen held out."""

from reproductions.frame.study import Study

STUDY = Study(
    name="norms_align",
    title="Do norms align words better than weights?",
    question="Kobayashi et al. 2020 align words by the cross-attention of translation models, and report fewer errors "
    "with norms ‖αf(x)‖ than with weights α. Does this hold for other models and languages, if layers, heads "
    "and the way of reading an alignment are chosen on other sentences than those on which they are judged?",
    headline=[
        "mean-layer-output-en-fr",
        "mean-layer-output-fr-en",
        "best-layer-output-en-fr",
        "best-layer-output-fr-en",
        "best-layer-input-en-fr",
        "best-layer-input-fr-en",
        "best-head-input-en-fr",
        "best-head-input-fr-en",
        "best-way-en-fr",
        "best-way-fr-en",
        "centred-en-fr",
        "centred-fr-en",
    ],
    only="direction",
)
