"""What does BERT look at? (Clark et al. 2019), on other encoders: the surface (§3, §6), and syntax (§4, §5)."""

from reproductions.frame.study import Study

STUDY = Study(
    name="clark2019",
    title="Clark et al. 2019: what do heads look at?",
    question="Where does attention go that needs no syntax to describe: to separators, to neighbours, everywhere? "
    "Which heads look alike? And is there a head for each dependency relation, and the whole tree in all heads "
    "together?",
    answer="On small sentence encoders special tokens are a sink, but never with half of a layer's weight; heads for "
    "neighbours, relations and antecedents exist as in BERT, and all heads together parse.",
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
)
