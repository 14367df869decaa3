"""How much of the similarity of keys and values is one constant per head, which no output depends on?"""

from reproductions.frame.study import Study

STUDY = Study(
    name="free_constant",
    title="How much anisotropy is left without the free constant?",
    question="Keys and values of a text point in similar directions. But adding one constant per head changes their "
    "similarity and no output. How much of the similarity, of its growth through the layers, and of what a "
    "penalty or a larger step size adds remains without that constant?",
    headline=[
        "kept-values",
        "kept-keys",
        "level-values",
        "level-keys",
        "rise-values",
        "order-values",
        "learnt-values",
        "deep-level-keys",
        "deep-kept-rise",
        "deep-penalty",
        "deep-penalty-kept",
        "deep-fast",
        "deep-fast-kept",
        "deep-fast-level",
    ],
    seeds=(0, 1, 2, 3),
    only="part",
)
