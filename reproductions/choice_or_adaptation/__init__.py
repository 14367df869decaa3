"""Do the heads that gates choose beat random ones, and is pruned better than from scratch, if all adapt as long?"""

from reproductions.frame.study import Study

STUDY = Study(
    name="choice_or_adaptation",
    title="Heads of a translation model: choice or adaptation?",
    question="In heavy_lifting, heads that gates chose were somewhat better than random ones, and heads trained from "
    "scratch better than both; but they had unequally many steps to do without the others. Do the heads that gates "
    "choose beat random ones if both adapt as long, and is a pruned model as good as one trained from scratch if both "
    "adapt long enough?",
    headline=[
        "chosen-at-once",
        "chosen-at-last",
        "chosen-shrinks",
        "pruned-equals-scratch",
        "random-pruned-equals-scratch",
        "chosen-from-scratch",
        "gradient-at-last",
        "length-at-last",
    ],
    seeds=tuple(range(8)),
    only="kind",
)
