"""Nguyen, Gravier and Sébillot 2022: an entropy penalty on attention, and how plausible it becomes."""

from itertools import product

from reproductions.frame.study import Study

STUDY = Study(
    name="nguyen2022",
    title="Nguyen et al. 2022: does sharper attention agree better with human rationales?",
    question="How does the plausibility of attention change with the weight λ of an entropy penalty?",
    headline=[
        *(
            f"{corpus}-{vectors}-auprc-{way}"
            for corpus, vectors, way in product(
                ("esnli", "hatexplain", "yelphat"), ("glove-100", "random-300"), ("rises", "falls")
            )
        ),
        "esnli-glove-100-accuracy-steady",
        "hatexplain-glove-100-strong-falls",
        "yelphat-glove-100-strong-falls",
    ],
    seeds=(0, 1, 2),
    published_setting="GloVe of width 300 and all of e-SNLI with its highlights, beside HateXplain and YelpHat "
    "(glove_300d/glove.840B.300d.txt and esnli_full/esnli_*.csv in the folder of data)",
)
