"""Voita et al. 2019: what the heads of a translation model do (part `heads`), and how few are needed (`pruning`)."""

from reproductions.frame.study import Study

STUDY = Study(
    name="voita2019",
    title="Voita et al. 2019: specialised heads do the heavy lifting, the rest can be pruned",
    question="Which heads of a translation model matter, what do they do, and how few are needed?",
    headline=(
        "few-voita2021",
        "confident-voita2021",
        "positional-pud",
        "syntax-obj-to-dependent",
        "syntax-nsubj-to-head",
        "rare-multi30k",
        "roles-needed-in-layers",
        "third-opus-encoder",
        "third-opus-all",
        "cross-over-encoder-opus-all",
        "roles-last-in-layers-opus-encoder",
        "trained-over-scratch",
        "transfer-small-tuned",
    ),
    seeds=(0, 1, 2),
    only="part",
    published_setting="pruning of models of 6 + 6 layers with 8 heads, trained on the English-Russian pairs of WMT and "
    "of OpenSubtitles (wmt_en_ru/ and opensubtitles_en_ru/ in the folder of data, each with train.en, train.ru, val.en "
    "…)",
)
