"""The configuration of `SelfAttentionClassifier`: one family that spans the models of TP 8, TP 9, Fosse and Nguyen."""

from typing import Final, no_type_check

from transformers import PreTrainedConfig

from lorgnette.errors import UserError, near

BLOCKS: Final = ("bare", "residual", "post-norm")
TRANSFORMS: Final = ("relu-linear", "none", "feed-forward")
POSITIONS: Final = ("none", "sinusoidal", "learnt", "relative")
POOLINGS: Final = ("mean", "cls", "cls-zero", "attention", "query", "bilstm-attention")

LEARNT_POSITIONS: Final = 512  # rows of a learnt table when nothing else is said


@no_type_check  # its base makes it a dataclass that takes further keywords (num_labels …), which its signature hides
class SelfAttentionClassifierConfig(PreTrainedConfig):
    """What a `SelfAttentionClassifier` is made of.

    block      "bare"       x ← g(f(x))                          TP 9, exercise 1
               "residual"   x ← g(x + f(LN x)), g outside the sum TP 9, exercise 2
               "post-norm"  x ← g(norm(x + f(x)))                Fosse et al. 2023, with g = "none"
    transform  g: "relu-linear" ReLU∘Linear, "none" the identity, "feed-forward" the usual two layers, which bring the
               usual skip and norm of the block's style (none in a bare block)
    positions  "none", "sinusoidal" or "learnt" (added to x⁽⁰⁾), "relative" (added to the scores of every layer)
    pooling    "mean", "cls" (an embedding learnt from a small random start), "cls-zero" (from zero, as in Fosse), or
               "attention", "query", "bilstm-attention" (`lorgnette.models.classifier.poolers`)

    `output_projection` (W_O, b_O) is None for the habit of the style: the seeds' TP 9 blocks have none, so that the
    W_O of a head is its slice of the identity; post-norm and feed-forward blocks have one.
    `max_position_embeddings` limits the length only for learnt positions; elsewhere None means no limit.
    """

    model_type = "lorgnette-classifier"
    attribute_map = {"hidden_size": "width", "num_hidden_layers": "layers", "num_attention_heads": "heads"}

    preset: str | None = None  # the name it was made from, for the record
    vocab_size: int = 30_000
    embedding_source: str = "random"  # where the table came from, for the record: random, glove, or a model's name
    embedding_width: int = None  # type: ignore[assignment]  # None: the width; another needs a projection, which is added
    freeze_embeddings: bool = False
    width: int = 100
    layers: int = 3
    heads: int = 1
    block: str = "bare"
    transform: str = "relu-linear"
    feed_forward_width: int = None  # type: ignore[assignment]  # None: four times the width
    output_projection: bool | None = None
    positions: str = "none"
    position_scale: float = 1.0  # factor of sinusoidal positions, whose components are larger than GloVe's
    max_position_embeddings: int | None = None
    max_offset: int = 16  # relative positions: offsets beyond ±16 share one bias
    pooling: str = "mean"
    lstm_layers: int = 1
    lstm_width: int = None  # type: ignore[assignment]  # per direction; None: the width
    concatenate_state: bool = False  # bilstm-attention: classify from [context; final state]
    dropout: float = 0.0  # on x⁽⁰⁾, on what attention returns, and on the pooled vector
    attention_dropout: float = 0.0
    layer_norm_eps: float = 1e-5
    initializer_range: float = 0.02  # learnt positions, <cls> and the global query
    embedding_std: float = 0.4  # random word vectors, about the spread of GloVe's
    pad_token_id: int = 0
    unk_token_id: int = 1
    cls_token_id: int = 2

    def __post_init__(self, **kwargs: object) -> None:
        if self.embedding_width is None:
            self.embedding_width = self.width
        if self.feed_forward_width is None:
            self.feed_forward_width = 4 * self.width
        if self.lstm_width is None:
            self.lstm_width = self.width
        if self.output_projection is None:
            self.output_projection = self.block == "post-norm" or self.transform == "feed-forward"
        if self.positions == "learnt" and self.max_position_embeddings is None:
            self.max_position_embeddings = LEARNT_POSITIONS
        super().__post_init__(**kwargs)
        self._check_choices()
        self._check_sizes()

    @property
    def uses_cls(self) -> bool:
        """Whether every text must begin with <cls>."""
        return self.pooling in ("cls", "cls-zero")

    def _check_choices(self) -> None:
        for field, choices in (
            ("block", BLOCKS),
            ("transform", TRANSFORMS),
            ("positions", POSITIONS),
            ("pooling", POOLINGS),
        ):
            value = getattr(self, field)
            if value not in choices:
                raise UserError(
                    f"{field} must be one of {', '.join(choices)}; got {value!r}.{near(str(value), choices)}"
                )

    def _check_sizes(self) -> None:
        counts = ("vocab_size", "embedding_width", "width", "heads", "feed_forward_width", "lstm_layers", "lstm_width")
        for field in (*counts, "max_offset"):
            if getattr(self, field) < 1:
                raise UserError(f"{field} must be at least 1; got {getattr(self, field)}.")
        if self.layers < 0:
            raise UserError(f"layers must be 0 or more; got {self.layers}.")
        if self.max_position_embeddings is not None and self.max_position_embeddings < 1:
            raise UserError(f"max_position_embeddings must be at least 1; got {self.max_position_embeddings}.")
        if self.width % self.heads:
            raise UserError(f"width must be a multiple of heads; got width {self.width} with {self.heads} heads.")
        if self.block == "post-norm" and self.width < 2:
            raise UserError(
                "post-norm divides by the standard deviation of a vector's components: width must be at least 2."
            )
        for field in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, field) < 1:
                raise UserError(f"{field} must be in [0, 1); got {getattr(self, field)}.")
        if self.num_labels is None or self.num_labels < 2:
            raise UserError(f"a classifier needs at least 2 labels; got {self.num_labels}.")
        specials = [self.pad_token_id, self.unk_token_id, self.cls_token_id]
        if len(set(specials)) < len(specials):
            raise UserError(f"<pad>, <unk> and <cls> must be different ids; got {specials}.")
