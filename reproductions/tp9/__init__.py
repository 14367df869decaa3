"""AMAL TP 9 (Sorbonne 2024-25): self-attention on IMDB, its four exercises, and what depth, positions and CLS do."""

from reproductions.frame.study import Study

STUDY = Study(
    name="tp9",
    title="TP 9: self-attention on IMDB",
    question="How do residual connections, positions, a `<cls>` token and depth affect small classifiers?",
    headline=[
        "target-residual-frozen",
        "target-best",
        "attention-beats-mean-frozen",
        "attention-beats-mean-trained",
        "residual-beats-base-frozen",
        "residual-beats-base-frozen-depths",
        "positions-sinusoidal-base-frozen",
        "positions-sinusoidal-residual-frozen",
        "cls-beats-mean-base-frozen",
        "cls-beats-mean-residual-frozen",
        "depth-hurts-base",
        "depth-residual-beats-base",
        "depth-hurts-residual",
        "order-blind-imdb-base",
        "order-shuffled-imdb-base-sinusoidal",
    ],
    seeds=(0, 1, 2),
)
