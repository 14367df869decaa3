"""What does BERT look at? (Clark et al. 2019), on other encoders: the surface (§3, §6), and syntax (§4, §5)."""

from reproductions.frame.study import Study

STUDY = Study(
    name="clark2019",
    title="Clark et al. 2019: what do heads attend to?",
    question="How much attention goes to separators and to neighbours, and how broad is it? Which heads are similar? "
    "Does a head track each dependency relation, and do all heads together encode the tree?",
    headline=(
        "e5-small-sep-share",
        "minilm-cls-share",
        "e5-small-previous-heads",
        "e5-small-next-heads",
        "e5-small-sep-to-sep",
        "e5-small-cls-broad",
        "e5-small-families",
        "e5-small-no-parser",
        "e5-small-head-for-det",
        "e5-small-head-for-dobj",
        "e5-small-head-for-auxpass",
        "e5-small-parser-over-next-word",
        "e5-small-vectors-add",
        "e5-small-parser-over-random",
        "e5-small-antecedents-over-nearest",
    ),
    seeds=(0,),
    only="model",
    published_setting="BERT-base on the 992 segments that Clark et al. released, without syntax "
    "(clark2019_segments/unlabeled_attn.pkl in the folder of data)",
)
