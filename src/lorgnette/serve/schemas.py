"""Requests and responses of the live page, as OpenAPI describes them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

LONGEST_TEXT = 10_000
MOST_METHODS = 6
MOST_GENERATED = 500
MOST_HEADS = 400
MOST_EDGES = 200

Text = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_TEXT)]
HeadName = Annotated[str, StringConstraints(pattern=r"^[a-z]+\.[1-9][0-9]{0,3}\.[1-9][0-9]{0,3}$")]


class Strict(BaseModel):
    """A schema that refuses fields that it does not name."""

    model_config = ConfigDict(extra="forbid")


class ShownText(Strict):
    """A text for a model."""

    model: str = Field(description="One of the models that the page was started with.")
    text: Text = Field(description="The text to analyse.")
    pair: Text | None = Field(None, description="A second text, for models that take pairs.")
    target: Text | None = Field(None, description="A translation, for translation models; if omitted, the model's own.")
    image: Annotated[str, StringConstraints(pattern=r"^data:image/(png|jpeg);base64,")] | None = Field(
        None, description="A picture that the text is about, PNG or JPEG, as a data URL; for models that take pictures."
    )
    generate: int | None = Field(
        None, ge=1, le=MOST_GENERATED, description="Number of tokens that a language model generates after the text."
    )
    example: int | None = Field(
        None, ge=0, description="Number of the text in the corpus, whose gold tree and rationale are then included."
    )


class Question(ShownText):
    """A text, and what to show of it."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    methods: Annotated[list[str], Field(max_length=MOST_METHODS)] | None = Field(
        None, description="Explanation methods; if omitted, the default methods."
    )
    explained: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        None, alias="class", description="Name of the class to explain; if omitted, the predicted class."
    )
    off: Annotated[list[HeadName], Field(max_length=MOST_HEADS)] = Field(
        default_factory=list, description='Heads to switch off, as "encoder.3.7", counted from 1.'
    )
    tower: bool = Field(
        False, description="Whether to show the tower that read the picture, in place of the language model."
    )


class WhyQuestion(ShownText):
    """A head and two tokens of a text."""

    head: HeadName = Field(description='The head, as "decoder.3.7", counted from 1.')
    query: int = Field(ge=0, description="Position of the query's token, counted from 0.")
    key: int | None = Field(None, ge=0, description="That of the key; if omitted, the key with the largest weight.")


class PathsQuestion(ShownText):
    """A text whose prediction is followed down to what it was made of."""

    among: Literal["all", "heads"] = Field("all", description="Whose edges are followed.")
    against: Text | None = Field(
        None, description="A text of as many tokens to compare with; if omitted, the mean over the tokens of the text."
    )
    count: int = Field(24, ge=1, le=MOST_EDGES, description="Number of edges.")


class SourcesQuestion(Strict):
    """A prompt whose lines are compared; the last line is the question."""

    model: str = Field(description="One of the models that the page was started with.")
    text: Text = Field(description="The prompt: a source on each line, and the question on the last.")
    answer: Text | None = Field(None, description="The answer; if omitted, the model answers.")
    generate: int = Field(16, ge=1, le=MOST_GENERATED, description="Number of tokens of the model's own answer.")


class LayersAnswer(Strict):
    """What each layer would predict."""

    tokens: list[str] = Field(description="The tokens that predict.")
    predictions: list[list[str]] = Field(description="[state position]: the top token; state 0 is the embeddings.")
    probabilities: list[list[float]] = Field(description="[state position]: its probability.")
    settled: list[int] = Field(description="The first state from which on the top token is the model's own.")


class WhyPart(Strict):
    """What one part of the residual stream adds to a score, beyond the mean of the row."""

    writer: str
    query: float = Field(description="Through the query.")
    key: float = Field(description="Through the key.")


class WhyAnswer(Strict):
    """The score of a query and a key, split by what wrote them."""

    head: str
    query: str
    key: str
    score: float
    beyond: float = Field(description="The score minus its mean over the keys that the query may see.")
    weight: float
    parts: list[WhyPart] = Field(description="All parts, the largest first; each column sums to `beyond`.")


class PathPart(Strict):
    """One part of the model, and where it is drawn."""

    name: str
    x: float = Field(description="From 0 to 1.")
    y: float = Field(description="The level: the output has the highest.")


class PathStep(Strict):
    """One edge: from a part that writes, into one that reads."""

    x: float
    y: float
    x2: float
    y2: float
    way: Literal["query", "key", "value", "feed_forward", "logits"] = Field(description="What it is read by.")
    attribution: float = Field(description="Its effect on the logit, to first order.")
    label: str


class PathsAnswer(Strict):
    """The strongest paths to what the model predicts."""

    explained: str
    logit: float
    parts: list[PathPart]
    edges: list[PathStep] = Field(description="In the order in which they were found: from the output downwards.")


class SourcePart(Strict):
    """One line of a prompt."""

    part: str
    text: str
    tokens: int
    compared: bool
    attention: float
    norm: float
    relevance: float
    drop: float
    alone: float | None


class SourcesAnswer(Strict):
    """What an answer used of the lines of its prompt."""

    answer: str
    log_probability: float
    without_any: float
    first: str | None = Field(description="The source without which the answer loses most, if that matters.")
    parts: list[SourcePart]
    notes: list[str]


class Numbers(Strict):
    """An array: little-endian bytes, compressed (zlib), in base64."""

    shape: list[int]
    data: str


class Explained(Strict):
    """One explanation: 32-bit floats, one per token of the source or target."""

    method: str
    side: int
    signed: bool
    values: Numbers


class Prediction(Strict):
    """Classes (or the most probable next tokens) with their probabilities."""

    what: str
    labels: list[str]
    shares: list[float]


class Without(Strict):
    """The effect of switching heads off."""

    off: list[tuple[str, int, int]] = Field(description="Stack, layer and head, counted from 0.")
    prediction: Prediction | None
    explanations: list[Explained]
    moved: float = Field(description="1 − cosine of the last states, mean over tokens.")


class SideAnswer(Strict):
    """Tokens on the query or the key side."""

    pieces: list[str]
    words: list[str] = Field(description="Words; a special token is a word of its own.")
    word: list[int] = Field(description="The word of each token.")
    index: list[int] = Field(description="The number of each word in the text; −1 for special tokens.")
    parts: list[str] | None = Field(None, description="The named part of each token (user, generated, …).")


class StackAnswer(Strict):
    """All attention of a stack."""

    name: str
    layers: int
    heads: int
    gone: list[tuple[int, int]] = Field(description="Layer and head, from 0, of pruned heads (weights all zero).")
    queries: int
    keys: int
    weights: list[str] = Field(description="Per layer [head query key]: round(255 √α) as bytes, zlib, in base64.")
    entropy: Numbers = Field(description="[layer head], in nats, mean over queries.")
    norms: Numbers | None = Field(description="[layer head key]: ‖f(x)‖; α‖f(x)‖ is the norm of the contribution.")
    moved: Numbers | None = Field(description="[layer head]: the sum of α‖f(x)‖ over all pairs.")


class TreesAnswer(Strict):
    """The gold tree and those of the heads; heads counted from 1, 0 is the root."""

    stack: str
    words: list[str]
    gold: list[int] | None
    relations: list[str] | None
    induced: Numbers | None = Field(description="[layer head word], 16-bit integers.")


class PictureAnswer(Strict):
    """A picture, or a tile or frame of one, as the model saw it."""

    side: int
    tile: int = Field(description="Counted from 0.")
    frame: int = Field(description="Counted from 0.")
    rows: int
    columns: int
    image: str | None = Field(description="The picture as a data URL.")
    size: list[int] | None = Field(description="Its width and height in pixels.")
    pieces: list[int] = Field(description="The token of each patch, row by row; −1 where there is none.")


class Document(Strict):
    """Everything that the views show of one text."""

    format: Literal["lorgnette-view"]
    version: Literal[1]
    model: str
    text: str
    pair: str | None
    target: str | None
    cut: bool = Field(description="Whether the text was truncated to the model's maximum length.")
    attending: str | None = Field(
        None, description="Which layers have attention, if not all have; numbers are the model's own."
    )
    generates: bool = Field(description="Whether the model can continue a text: `generate` is for such models only.")
    layered: bool = Field(description="Whether each layer can be asked for its prediction: `/api/layers`.")
    predicts: bool = Field(description="Whether its prediction can be followed: `/api/paths`.")
    sees: bool = Field(description="Whether the model takes pictures: `image` is for such models only.")
    generated: dict[str, object] | None = Field(
        None, description="The text that a language model generated, and the settings."
    )
    prediction: Prediction | None
    explained: str | None = Field(description="The class or tokens that are explained.")
    stacks: list[StackAnswer]
    explanations: list[Explained]
    rationale: list[float] | None
    trees: TreesAnswer | None
    pictures: list[PictureAnswer]
    sides: list[SideAnswer]
    without: Without | None


class ModelState(Strict):
    """A model of the page."""

    name: str
    state: Literal["waiting", "loading", "ready", "failed"]
    message: str | None = Field(description="The error message.")


class PageState(Strict):
    """What the page offers."""

    models: list[ModelState]
    methods: dict[str, str] = Field(description="Explanation methods with a one-line description of each.")
    default_methods: list[str]
    corpus: str | None
    limits: dict[str, int]


class CorpusText(Strict):
    """One text of the corpus."""

    number: int
    text: str
    pair: str | None
    label: str | None


class CorpusPage(Strict):
    """Some texts of the corpus."""

    name: str
    total: int
    texts: list[CorpusText]


class Problem(BaseModel):
    """An error: what was wrong, what was expected, what to do."""

    detail: Any
