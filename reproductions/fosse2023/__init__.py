"""Fosse, Nguyen, Sébillot and Gravier 2023: the geometry of self-attention in classification.

attention → pure-attention models; encoders → fine-tuned ones; classes → many classes; tagging → parts of speech
"""

from reproductions.frame.study import Study

STUDY = Study(
    name="fosse2023",
    title="Fosse et al. 2023: when geometry replaces attention",
    question="Are the vectors of self-attention anisotropic, why, and does their geometry tell more about the class "
    "than the attention weights do?",
    headline=(
        "rise-hatexplain-values-l5",
        "last-hatexplain-values-random-300",
        "penalty-hatexplain-values-1e-1",
        "map-hatexplain-l5",
        "replaced-hatexplain-l5-uniform",
        "anisotropy-esnli-minilm",
        "orthogonal-esnli-minilm",
        "nearest-hatexplain-minilm",
        "labels-spearman-genres",
        "tags-cones-pretrained",
    ),
    seeds=(0, 1, 2, 3, 4),
    only="part",
    published_setting="pure-attention models on GloVe of width 300 and all of e-SNLI with its highlights, beside "
    "HateXplain and YelpHat (glove_300d/glove.840B.300d.txt and esnli_full/esnli_*.csv in the folder of data)",
)
