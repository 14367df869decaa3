"""What each layer encodes: probes on frozen states, with control tasks and baselines."""

from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.constraints import Interval, NotEmpty, Seed
from lorgnette.errors import UserError, near
from lorgnette.lens.base import Lens
from lorgnette.lens.hidden_states import any_text, hidden_states
from lorgnette.lens.occurrences import word_vectors
from lorgnette.lens.probes.outcome import ProbeItems, probed
from lorgnette.lens.probes.probe import Recipe
from lorgnette.results import Result
from lorgnette.statistics.hash_sample import Column, HashSample
from lorgnette.statistics.hashing import text_key
from lorgnette.subject import Subject
from lorgnette.texts.annotated import share
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.types import ModelOutput

MOST_MEMORY = 2**32
CODE = 2**24 - 1
"""Labels, word types and texts are kept as 24 bits of a hash, which single precision holds exactly."""
_COLUMNS = 4  # part, label, type, text
SENTENCE = "label"


class Probes(Lens):
    """Linear and one-hidden-layer probes for a label of words or texts, on every hidden state.

    A word's vector is the mean over its pieces; a text's the mean over its words. A sample of `words` items is kept,
    chosen by hash; a hash of the text's id says whether they train (`development` of the texts) or test. Each probe
    has a control task (a random label for every word type, Hewitt and Liang 2019) and

        selectivity = accuracy − accuracy on the control task

    beside the most frequent label, the most frequent label of each word type, and a probe on the input embeddings
    alone. `mixing` is how much a linear probe on a learnt mix of all states takes of each (Peters et al. 2018).

    What it does not tell you: whether the model uses what a probe finds, or that what no probe finds is absent.
    """

    stack: str
    width: int
    layers: int

    name: ClassVar[str] = "probes"
    summary: ClassVar[str] = "what each layer encodes: probes for tags or labels, with control tasks and baselines"
    reads = frozenset({"hidden states", "cpu"})

    def __init__(
        self,
        label: str = "upos",
        *,
        words: Annotated[int, Interval(2)] = 4000,
        development: Annotated[float, Interval(0, 1)] = 0.7,
        hidden: Annotated[int, Interval(1)] | None = 64,
        seeds: Annotated[Sequence[Seed], NotEmpty()] = (0, 1, 2),
        epochs: Annotated[int, Interval(1)] = 12,
    ) -> None:
        super().__init__()
        self.label, self.words, self.development = label, words, development
        self.hidden, self.seeds, self.epochs = hidden, tuple(seeds), epochs

    def allocate(self, subject: Subject) -> None:
        self.precision: torch.dtype = torch.float64 if subject.dtype == torch.float64 else torch.float32
        self.causal: bool = subject.anatomy.causal
        with torch.no_grad():
            outputs = subject.run(any_text(subject), output_hidden_states=True, return_dict=True)
        self.stack, states = next(iter(hidden_states(outputs, self.causal).items()))
        self.width, self.layers = states[-1].shape[-1], len(states)
        self.device_of_probes: torch.device = subject.device  # not a plain setting: shards of any device merge
        self.embeddings = [subject.model.get_input_embeddings()]  # in a list: a lens must not own the model
        size = self.words * (self.layers + 1) * self.width * 4
        if size > MOST_MEMORY:
            raise UserError(
                f"{self.words:,} items of {self.layers} states of {subject.name!r} take {size / 2**30:.0f} GiB. "
                "Use Probes(words=…) with fewer."
            )
        self._sampled()

    def _sampled(self) -> None:
        codes, vectors = Column((_COLUMNS,), torch.int64), Column((self.layers + 1, self.width), self.precision)
        self.rows: HashSample = HashSample(self, "items", {"codes": codes, "vectors": vectors}, size=self.words)
        self.sums("offered", 1)

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """Add words (or texts) with their vectors to the sample."""
        states = hidden_states(outputs, self.causal)[self.stack]
        with torch.no_grad():
            embedded = self.embeddings[0](batch.source.ids)
            if embedded.shape[-1] > self.width:
                embedded = embedded[..., : self.width]
            room = self.width - embedded.shape[-1]
            vectors = [*states, torch.nn.functional.pad(embedded, (0, room))]
            if self.label == SENTENCE:
                names, columns, values = self._texts(batch, vectors)
            else:
                names, columns, values = self._tagged(batch, vectors)
        self.offered += len(names)
        if names:
            numbers = torch.tensor([text_key("items", 0, name) >> 16 for name in names])
            self.rows.add(numbers, codes=columns, vectors=values)

    def _tagged(self, batch: Batch, vectors: list[Tensor]) -> tuple[list[str], Tensor, Tensor]:
        tokens, where, names, columns = batch.source, [], [], []
        for text, example in enumerate(batch.examples):
            tags = example.tags.get(self.label)
            if tags is None:
                known = sorted({name for e in batch.examples for name in e.tags})
                raise UserError(
                    f"The text {example.id!r} has no {self.label!r} tags for its words.{near(self.label, known)} "
                    f"It has: {', '.join(known) or 'none'}; '{SENTENCE}' asks for the label of the text."
                )
            words = set(tokens.word[text].tolist())
            part = int(share(f"probe/{example.id}") >= self.development)
            for word, tag in enumerate(tags):
                if word in words:
                    where.append((text, word))
                    names.append(f"{example.id}\x1f{word}")
                    columns.append((part, _code(tag), _code(tokens.words[text][word]), _code(example.id)))
        placed = torch.tensor(where, dtype=torch.long).reshape(-1, 2)
        return (
            names,
            torch.tensor(columns, dtype=torch.int64).reshape(-1, _COLUMNS),
            word_vectors(tokens, placed, vectors),
        )

    def _texts(self, batch: Batch, vectors: list[Tensor]) -> tuple[list[str], Tensor, Tensor]:
        names, columns = [], []
        for text, example in enumerate(batch.examples):
            if example.label is None:
                raise UserError(f"The text {example.id!r} has no label. Give a corpus with labels, or a tag of words.")
            words = batch.source.words[text]
            part = int(share(f"probe/{example.id}") >= self.development)
            first = words[0] if words else ""
            names.append(example.id)
            columns.append((part, _code(str(example.label)), _code(first), _code(example.id)))
        return (
            names,
            torch.tensor(columns, dtype=torch.int64).reshape(-1, _COLUMNS),
            _text_vectors(batch.source, vectors),
        )

    def joined(self, other: "Probes") -> "Probes":
        """Both samples in full; a merge would keep only as many items as one of them."""
        both = Probes(
            self.label, words=self.words + other.words, hidden=self.hidden, seeds=self.seeds, epochs=self.epochs
        )
        for name in ("bound", "sites", "heads", "precision", "causal", "stack", "width", "layers", "device_of_probes"):
            setattr(both, name, getattr(self, name))
        both._sampled()
        both.states.take_in([self.states.tensors(), other.states.tensors()])
        both.provenance = self.provenance
        both.states.note_use()
        return both

    def compute(self) -> Result:
        """Accuracies by probe and state, with their controls; missing if one of the two parts is empty."""
        rows = self.rows.rows()
        part, label, kind, text = rows["codes"].mT
        vectors = rows["vectors"].transpose(0, 1).to(self.device_of_probes)
        train, test = ((part == wanted).nonzero()[:, 0] for wanted in (0, 1))
        items = [ProbeItems(vectors[:-1, at], vectors[-1:, at], label[at], kind[at], text[at]) for at in (train, test)]
        recipes = {"linear": Recipe(epochs=self.epochs)}
        if self.hidden is not None:
            recipes["mlp"] = Recipe(hidden=self.hidden, epochs=self.epochs)
        result = self.result(probed(*items, recipes=recipes, seeds=self.seeds))
        result.data.attrs |= {"label": self.label, "offered": int(self.offered), "stack": self.stack}
        return result


def _code(name: str) -> int:
    return text_key("code", name) & CODE


def _text_vectors(tokens: Tokens, vectors: Iterable[Tensor]) -> Float[Tensor, "text all_states"]:
    """The mean over all pieces of words; of a text without words, over all its tokens."""
    counted = (tokens.word >= 0) & tokens.mask
    counted = torch.where(counted.any(-1, keepdim=True), counted, tokens.mask)[..., None]
    means = [torch.where(counted, state, 0.0).sum(1) / counted.sum(1) for state in vectors]
    return torch.cat([mean.to(torch.promote_types(mean.dtype, torch.float32)) for mean in means], -1).cpu()
