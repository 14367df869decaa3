"""The reason that the practical gives for positions, put to the test: word order and negation.

Predicted before any run: without positions a model gives a shuffled text the very same answer, so that it tells the two
texts of a contrast pair apart no better than by chance, ½. With positions it loses accuracy on shuffled texts, is above
½ on contrast pairs, and gains more on sentences with a negation than on those without. Bounds are those of `claims`.

Added when the first runs on sentences were known, in which many models with positions lie *below* ½: in most templates
the denied word comes first, so that a model which merely weighs early words more is wrong on them without having read
anything. `balanced` runs report the two kinds of templates apart; their mean is ½ for every model that goes by place
alone. Predicted before these runs: with positions the balanced share is above ½.
"""

import gc
import tempfile
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.texts import Example, corpus
from lorgnette.training import train
from lorgnette.training.data import Collator, Item, Reader
from reproductions.frame.running import numbers_of, ready_for_training
from reproductions.frame.settings import Machine
from reproductions.frame.tokens import stored
from reproductions.tp9.measure import settings_of

NEGATIONS = frozenset(
    (
        "not",
        "no",
        "never",
        "nothing",
        "nobody",
        "none",
        "neither",
        "nor",
        "without",
        "hardly",
        "barely",
        "cannot",
        "n't",
    )
)
_BATCH = 256
_OPPOSITES = (
    ("good", "bad"), ("great", "terrible"), ("funny", "boring"), ("brilliant", "awful"), ("wonderful", "horrible"),
    ("clever", "stupid"), ("excellent", "poor"), ("beautiful", "ugly"), ("exciting", "dull"), ("superb", "mediocre"),
)  # fmt: skip
_TEMPLATES = (
    "the {what} was not {no} , it was {yes}",
    "the {what} is {yes} and not {no}",
    "it is never {no} but always {yes}",
    "nothing about the {what} is {no} , everything is {yes}",
    "far from being {no} , the {what} is {yes}",
    "i did not know that the {what} would be so {yes} , it is not {no}",
)
_SUBJECTS = ("film", "movie", "story", "acting")


def contrast_pairs() -> list[tuple[str, str]]:
    """(positive, negative): the same words in another order, so that only order says which is which."""
    pairs = {}  # a template without a subject gives the same pair for all of them
    for template, (good, bad), what in product(_TEMPLATES, _OPPOSITES, _SUBJECTS):
        pair = template.format(what=what, yes=good, no=bad), template.format(what=what, yes=bad, no=good)
        pairs[pair] = None
    return list(pairs)


def ordered(*, machine: Machine, shuffles: int, test: bool, balanced: bool = False, **told: Any) -> dict[str, Any]:
    """Trains one model as `measure.trained`, and asks it about shuffled texts, contrast pairs and negations.

    With `balanced`, contrast pairs are also reported by whether the denied word comes first or last.
    """
    ready_for_training()
    with tempfile.TemporaryDirectory(prefix="lorgnette-", ignore_cleanup_errors=True) as folder:
        settings = settings_of(**told, data=machine.data, out=Path(folder) / "run")
        prepared = stored(settings, machine.scratch, test=test)
        gc.freeze()  # as in `measure.trained`
        run = train(settings, prepared=prepared)
        model = SelfAttentionClassifier.from_pretrained(run.folder).eval()
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("highest")  # a shuffled sum may differ in its last bit, not more
    items = prepared.test
    assert items is not None
    dice = torch.Generator().manual_seed(told["seed"])
    found = {
        "shuffled": shuffled(model, items.items, shuffles, dice),
        "pairs": pairs_right(model, prepared.reader, balanced=balanced),
        "negation": by_negation(model, prepared.reader, machine.data),
    }
    return {**numbers_of(run), **found}


@torch.no_grad()
def margins(model: SelfAttentionClassifier, items: Sequence[Item]) -> Float[Tensor, " text"]:
    """Logit of the positive class less that of the negative one, in the order of the items."""
    collate = Collator(model.config.pad_token_id)
    order = sorted(range(len(items)), key=lambda number: len(items[number]["input_ids"]))
    out = torch.empty(len(items), dtype=torch.float64)
    for begin in range(0, len(order), _BATCH):
        chosen = order[begin : begin + _BATCH]
        batch = {name: value.to(model.device) for name, value in collate([items[n] for n in chosen]).items()}
        batch.pop("labels", None)
        logits = model(**batch).logits.double().cpu()
        out[chosen] = logits[:, 1] - logits[:, 0]
    return out


def shuffled(
    model: SelfAttentionClassifier, items: Sequence[Item], draws: int, dice: torch.Generator
) -> dict[str, float]:
    """Accuracy on the texts as they are and with their tokens in a random order, and the share of changed answers."""
    gold = torch.tensor([item["labels"] for item in items], dtype=torch.bool)
    whole = margins(model, items) > 0
    accuracy, changed = [], []
    for _ in range(draws):
        mixed = [{**item, "input_ids": _mixed(item["input_ids"], dice)} for item in items]
        answer = margins(model, mixed) > 0
        accuracy.append(float((answer == gold).double().mean()))
        changed.append(float((answer != whole).double().mean()))
    mean = {"accuracy": sum(accuracy) / draws, "changed": sum(changed) / draws}
    return {"whole": float((whole == gold).double().mean()), **mean, "texts": len(items)}


def _mixed(ids: Any, dice: torch.Generator) -> Tensor:
    tokens = torch.as_tensor(ids)
    return tokens[torch.randperm(len(tokens), generator=dice)]


def denied_first(pair: tuple[str, str]) -> bool:
    """Whether the word that is denied comes before the one that is affirmed."""
    bad = {no for _, no in _OPPOSITES}
    adjectives = bad | {yes for yes, _ in _OPPOSITES}
    return next(word for word in pair[0].split() if word in adjectives) in bad


def pairs_right(model: SelfAttentionClassifier, reader: Reader, *, balanced: bool = False) -> dict[str, Any]:
    """The share of contrast pairs whose positive text has the greater margin; a tie counts a half.

    `balanced`: also by the place of the denied word, and the mean of the two.
    """
    pairs = contrast_pairs()
    texts = [text for pair in pairs for text in pair]
    found = margins(model, _items(reader, [Example(str(n), text, label=0) for n, text in enumerate(texts)]))
    gaps = found[0::2] - found[1::2]
    right = _half(gaps)
    out = {"pairs": len(pairs), "right": float(right.mean()), "gap": float(gaps.abs().mean())}
    if balanced:
        first = torch.tensor([denied_first(pair) for pair in pairs])
        out |= {"denied_first": float(right[first].mean()), "denied_last": float(right[~first].mean())}
        out["balanced"] = (out["denied_first"] + out["denied_last"]) / 2
    return out


def _half(gaps: Float[Tensor, " pair"]) -> Float[Tensor, " pair"]:
    """1 above zero, 0 below, ½ for what only rounding tells apart."""
    return torch.where(gaps.abs() < 1e-4, torch.tensor(0.5, dtype=gaps.dtype), (gaps > 0).to(gaps.dtype))


def by_negation(model: SelfAttentionClassifier, reader: Reader, data: str | None) -> dict[str, Any]:
    """Accuracy on the test sentences of SST-2 that have a negation and on those that have none."""
    examples = list(corpus("sst2", split="test", data=data))
    right = (margins(model, _items(reader, examples)) > 0) == torch.tensor([bool(one.label) for one in examples])
    has = torch.tensor([not NEGATIONS.isdisjoint((one.text or "").lower().split()) for one in examples])
    parts = {"with": has, "without": ~has}
    return {
        **{name: float(right[part].double().mean()) for name, part in parts.items()},
        "sentences": {name: int(part.sum()) for name, part in parts.items()},
    }


def _items(reader: Reader, examples: Sequence[Example]) -> list[Item]:
    return [item for item, _ in _read(reader, examples)]


def _read(reader: Reader, examples: Sequence[Example]) -> Iterator[tuple[Item, bool]]:
    for item, cut in reader.read(examples):
        yield {**item, "input_ids": torch.as_tensor(item["input_ids"])}, cut
