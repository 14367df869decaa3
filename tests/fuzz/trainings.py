"""`lo.train` and `lo.prune` on a few texts with odd settings: what the record says is what the written checkpoint does.

The checkpoint is opened by plain transformers and asked one text at a time, without padding.
"""

import json
import math
import random
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
import transformers as hf
from hypothesis import strategies as st

import lorgnette as lo
import lorgnette.models
from fuzz.damage import HOSTILE
from fuzz.place import Place
from fuzz.trial import Call
from lorgnette.training import Splits

Texts = list[tuple[str, Any]]
"""Texts with what a corpus calls their classes."""
GOOD, BAD = "good very fine .", "bad not un able"
SIZE = {"layers": 1, "width": 8, "heads": 2, "embeddings": "random"}
BATCH = 8


def cases(place: Place) -> st.SearchStrategy[Call]:
    return st.one_of(_training(place), _training(place), _corpora(place), _pruning(place), _pruning(place))


# --- what goes in -----------------------------------------------------------------------------------------------------


def texts(count: int, classes: tuple[Any, ...] = ("bad", "good"), seed: int = 0) -> Texts:
    """Texts whose class is what most of their words say."""
    draw = random.Random(f"{seed} {count}")
    said = {name: (BAD, GOOD, "the cat sat on", "a dog ran")[place % 4].split() for place, name in enumerate(classes)}
    return [
        (" ".join(draw.choices(said[name], k=draw.randint(1, 6))), name)
        for name in (classes[number % len(classes)] for number in range(count))
    ]


def splits(train: Texts, validation: Texts | None, test: Texts | None) -> Splits:
    """The same texts as three corpora, with the classes of the training texts."""
    names = tuple(sorted({str(name) for _, name in train}))

    def made(some: Texts, which: str) -> lo.Corpus:
        examples = [
            lo.Example(f"{which} {n}", text, label=names.index(str(label))) for n, (text, label) in enumerate(some)
        ]
        return lo.Corpus.of(examples, name="few", labels=names)

    return Splits(
        made(train, "train"),
        None if validation is None else made(validation, "validation"),
        None if test is None else made(test, "test"),
    )


@cache
def plain(count: int, seed: int) -> lo.Corpus:
    """Texts without classes, for language models; with translations, for translators."""
    draw = random.Random(seed)
    examples = [
        lo.Example(str(n), text, target=text)
        for n in range(count)
        for text in [" ".join(draw.choices((*GOOD.split(), *BAD.split(), "the", "cat", "sat"), k=draw.randint(3, 8)))]
    ]
    return lo.Corpus.of(examples, name="plain")


_ANY = tuple(value for value in HOSTILE if not isinstance(value, list | dict))
TRAINING: dict[str, tuple[Any, ...]] = {
    "model": ("tp9-base", "tp9-residual-cls", "tp9-position", "pure-attention", "mean", "attention-pooling", "tp9"),
    "epochs": (1, 2, 3, 0, -1, 1.5, True), "batch_size": (1, 3, 7, 1 << 20, (1 << 20) + 1, 0),
    "accumulate": (1, 2, 5, 10**6, 0), "learning_rate": (1e-3, 1e-30, 10.0, 1e30, math.inf, math.nan, 0, -1.0),
    "warmup": (0, 0.5, 0.999, 1, 3, 10**6, 1.5, math.nan, -1), "label_smoothing": (0, 0.5, 0.999, 1, -0.1),
    "weight_decay": (0.0, 0.1, 1e6, 1e30, math.inf), "gradient_norm": (0, 1e-30, 1.0, 10**6, math.nan),
    "patience": (1, 2, 10**6, 0), "select": ("loss", "cross_entropy", "accuracy", "bleu", "x"),
    "keep_last": (True, False, 1), "keep_checkpoints": (True, False), "evaluate_every": (1, 2, 5, 10**6, 0),
    "schedule": ("linear", "cosine", "constant", "polynomial", "inverse_sqrt", "constant_with_warmup",
                 "cosine_with_restarts", "reduce_lr_on_plateau", "cosine_with_min_lr", "warmup_stable_decay", "x", ""),
    "max_length": (1, 2, 3, 500, 10**6, 0), "validation": (0.001, 0.1, 0.5, 0.999, 0, 1, 2.0),
    "limit": (1, 2, 3, 9, 10**6, 0), "test_limit": (1, 2, 10**6, 0), "seeds": ([0], [1, 2], [3, 3], [-1], [2**40], []),
    "split_seed": (0, 7, -1), "style": ("default", "whitespace", "x"), "vocabulary": ("train", "vectors", "x"),
    "max_vocabulary": (1, 2, 10**6, 0), "min_count": (1, 2, 10**6), "freeze": (True, False),
    "embeddings": ("random", "glove", "model:nowhere", "/nowhere", ""), "bf16": (True, False), "fp16": (True, False),
    "layers": (0, 1, 2, -1), "heads": (1, 2, 3, 8, 0), "width": (1, 2, 8, 9), "dropout": (0.0, 0.5, 0.999, 1.0),
    "positions": ("none", "sinusoidal", "learnt", "relative", "x"),
    "pooling": ("mean", "cls", "cls-zero", "attention", "query", "bilstm-attention", "x"),
    "entropy": (0, 0.1, 1e6, 1e38, math.inf, -1.0), "entropy_rows": ("cls", "all", "x"),
    "entropy_layers": ([1], [2], [0], []), "rationale_weight": (0, 0.1), "rationale_loss": ("jaccard", "kl", "x"),
    "heuristic_weight": (0, 0.1), "stream": (True, False), "labels": ({}, {"good": "bad"}, {"x": "y"}),
    "overrides": ({}, {"layers": 2}, {"x": 1}, {"max_offset": 0}, {"initializer_range": math.nan}, {"num_labels": 3},
                  {"id2label": {0: "x"}}, {"pad_token_id": 1}, {"attention_dropout": 0.999}, {"embedding_std": 1e38},
                  {"vocab_size": 3}, {"layer_norm_eps": 0.0}, {"transform": "none"}, {"block": "bare"}),
    "text_column": ("text", "x"), "label_column": (None, "label", "x"), "test_split": ("test", "x"),
    "resume": (True, False), "data": (None, "/nowhere"),
}  # fmt: skip
PRUNING: dict[str, tuple[Any, ...]] = {
    "keep": (0.5, 0.9, 0.2, 0.01, 1e-9, 0.999999, 1, 0), "size": ("40KB", "20KB", "1B", "9GB", "x", "0KB"),
    "speed": (1.01, 1.2, 1e9, 1, math.inf), "weight": (0, 0.1, 1e6, 1e38, math.nan),
    "only": (["heads"], ["units"], ["layers"], ["heads", "layers"], ["x"], []), "uniform": (True, False),
    "method": ("gates", "importance", "agreement", "x"), "temperature": (0.33, 1e-9, 1, 0), "over": ("mean", "sum"),
    "rule": ("code", "paper"), "train": ("all", "gated", "none"), "gates_learning_rate": (0.5, 1e-9, 1e9, math.inf),
    "controls": (0, 1, 3, -1), "scratch": (True, False), "train_random": (True, False), "allow_empty": (True, False),
    "distil": (0, 1.0, 1e6, 1e38), "epochs": (1, 2, 0), "settle": (0, 1, 2, -1), "patience": (1, 2),
    "evaluate_every": (1, 3, 10**6), "learning_rate": (1e-4, 1e-30, 10.0, 1e30, math.nan), "batch_size": (1, 5, 999),
    "format": ("pruned", "stock"), "stacks": (["encoder"], ["decoder"], ["cross"], [], None), "bf16": (True, False),
    "max_length": (2, 4, 10**6, 0), "limit": (1, 2, 9, 10**6), "test_limit": (1, 2, 5), "seeds": ([1], [0, 1], []),
    "sweep": ([0.5], [0.9, 0.5], [0.5, 0.5], []), "label_smoothing": (0, 0.3), "accumulate": (1, 3),
    "gradient_norm": (0, 1e-30), "weight_decay": (0.1, 1e6), "warmup": (0, 0.5, 5), "schedule": ("cosine", "x"),
    "labels": ({"good": "LABEL_1", "bad": "LABEL_0"}, {"good": "LABEL_0", "bad": "LABEL_1"}, {"good": "x"}),
    "select": ("loss", "cross_entropy", "accuracy"), "keep_last": (True, False), "beams": (1, 2, 0),
    "overrides": ({}, {"x": 1}, {"hidden_dropout_prob": 0.9}), "onnx": (False,), "stream": (True, False),
}  # fmt: skip


@st.composite
def _settings(draw: st.DrawFn, known: dict[str, tuple[Any, ...]], most: int) -> dict[str, Any]:
    """Some of the settings, most with a value from the table, now and then with anything."""
    names = draw(st.lists(st.sampled_from(sorted(known)), max_size=most, unique=True))
    return {
        name: draw(st.sampled_from(_ANY)) if draw(st.integers(0, 11)) == 0 else draw(st.sampled_from(known[name]))
        for name in names
    }


# --- train ------------------------------------------------------------------------------------------------------------


@st.composite
def _training(draw: st.DrawFn, place: Place) -> Call:
    """Right texts, odd settings."""
    given = draw(_settings(TRAINING, 5))
    train, validation, test = texts(24), draw(st.sampled_from((None, texts(10, seed=1)))), texts(12, seed=2)
    parts = splits(train, validation, test if draw(st.booleans()) else None)
    return Call(f"lo.train({given}, {validation is not None})"[:900], lambda: trained(parts, given), (), honest)


def trained(corpus: Any, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """What each run recorded, with what its checkpoint says of the texts that it was scored on."""
    right = {"model": "tp9-cls", "epochs": 1, "batch_size": BATCH, **SIZE, **given}
    with tempfile.TemporaryDirectory() as folder:
        runs = lo.train(corpus=corpus, out=Path(folder) / "run", **right)
        scored = _scored_texts(corpus, runs[0].record)
        return [(run.record, *_asked(run.folder, run.record, scored)) for run in runs]


def _scored_texts(corpus: Any, record: dict[str, Any]) -> Texts:
    """The texts of the test split, else those of validation, read here once more."""
    settings = record["settings"]
    if not isinstance(corpus, Splits):
        which = next(name for name in ("test", "validation") if name in corpus)
        return [(row["text"], row["label"]) for _, row in pd.DataFrame(corpus[which]).iterrows()]
    part = corpus.test
    if part is not None:
        some = list(part)[: settings["test_limit"]]
    elif corpus.validation is not None:
        some = list(corpus.validation)
    else:
        whole = list(corpus.train)[: settings["limit"]]
        held = max(1, round(len(whole) * settings["validation"]))
        some = [whole[n] for n in random.Random(settings["split_seed"]).sample(range(len(whole)), held)]
    names = corpus.train.labels
    assert names is not None
    return [(example.text, names[example.label]) for example in some if example.label is not None]


def _asked(folder: Path, record: dict[str, Any], scored: Texts) -> tuple[Any, ...]:
    """Accuracy and cross-entropy of the written model, and whether all of its weights are numbers."""
    model = hf.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    names = [model.config.id2label[n] for n in range(model.config.num_labels)]
    longest = record["resolved"]["max_length"] if "resolved" in record else None
    right, losses, ties = 0, [], 0
    for text, label in scored:
        inputs = tokenizer(text, return_tensors="pt", truncation=longest is not None, max_length=longest)
        with torch.no_grad():
            logits = (
                model(**{name: each for name, each in inputs.items() if name != "token_type_ids"}).logits[0].double()
            )
        place = names.index(_called(label))
        right += int(logits.argmax()) == place
        losses.append(float(torch.nn.functional.cross_entropy(logits, torch.tensor(place))))
        ties += float(logits.topk(2).values.diff().abs()) < 1e-4
    finite = all(bool(torch.isfinite(each).all()) for each in model.parameters())
    return len(scored), right, float(np.mean(losses)), ties, finite, sum(each.numel() for each in model.parameters())


def _called(label: Any) -> str:
    """What a class is called: numbers are whole, and truth is a number."""
    return label if isinstance(label, str) else str(int(label))


def honest(answers: list[tuple[Any, ...]]) -> str | None:
    """Whether the records say what the checkpoints do."""
    for record, count, right, loss, ties, finite, size in answers:
        metrics = record["metrics"]["test"] or record["metrics"]["validation"]
        exact = not record["settings"]["bf16"]
        if not finite or not all(map(math.isfinite, _numbers(record["metrics"]))):
            return f"numbers that are none: {record['metrics']}"
        if metrics["texts"] != count:
            return f"{metrics['texts']} texts, not {count}"
        if exact and abs(metrics["accuracy"] * count - right) > ties + 1e-6:
            return f"accuracy {metrics['accuracy']}, and the checkpoint has {right} of {count} right"
        if exact and not math.isclose(metrics["cross_entropy"], loss, rel_tol=1e-3, abs_tol=1e-5):
            return f"cross-entropy {metrics['cross_entropy']}, and the checkpoint has {loss}"
        if record["parameters"]["total"] != size:
            return f"{record['parameters']['total']} parameters, not {size}"
        if (said := _kept_epoch(record)) is not None:
            return said
    return None


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for inner in value.values() for number in _numbers(inner)]
    return [float(value)] if isinstance(value, int | float) else []


def _kept_epoch(record: dict[str, Any]) -> str | None:
    """The step that is called best is the best of the curve."""
    settings, curve = record["settings"], record["curve"]
    if settings["keep_last"] or not curve:
        return None if curve else "no evaluation"
    values = {entry["step"]: entry["validation"][settings["select"]] for entry in curve}
    best = max(values.values()) if settings["select"] == "accuracy" else min(values.values())
    found = values[record["best"]["step"]]
    return None if found == best else f"step {record['best']['step']} was kept, with {found}, and the best has {best}"


# --- odd texts --------------------------------------------------------------------------------------------------------

ODD_TEXTS = (
    "",
    " ",
    "\n",
    "\u200b",
    "good",
    "the " * 700,
    "\0",
    "🙂",
    "\ud800",
    "[CLS]",
    "<pad>",
    "<cls> <unk>",
    "a" * 9000,
)
CLASSES: tuple[tuple[Any, ...], ...] = (
    ("bad", "good"), ("bad", "fine", "good"), (0, 1), (1, 2), (0, 1, 2), (-1, 1), (0.0, 1.0), ("0", "1"), (True, False),
    ("a", "A"), ("x", " x"), ("good",), ("", "x"), (None, "x"), ("3", "10", "20"),
)  # fmt: skip


@st.composite
def _corpora(draw: st.DrawFn, place: Place) -> Call:
    """Splits whose classes or texts differ: other names, fewer, others in test, odd texts, texts in both."""
    classes = draw(st.sampled_from(CLASSES))
    some = st.lists(st.sampled_from(classes), min_size=1, unique=True).map(tuple)
    tested = draw(st.one_of(some, st.sampled_from(CLASSES)))
    validated = draw(st.one_of(st.just(classes), some))
    rows = {
        "train": texts(24, classes), "validation": texts(9, validated, 1), "test": texts(10, tested, 2),
    }  # fmt: skip
    for name in draw(st.lists(st.sampled_from(sorted(rows)), max_size=2)):
        rows[name] = [(draw(st.sampled_from(ODD_TEXTS)), rows[name][0][1]), *rows[name][1:]]
    for name in draw(st.lists(st.sampled_from(("validation", "test")), max_size=1)):
        del rows[name]
    corpus = {name: pd.DataFrame(some, columns=["text", "label"]) for name, some in rows.items()}
    given = {"label_column": "label", "epochs": draw(st.sampled_from((1, 3))), "learning_rate": 0.02}
    first = {name: some[0][0][:9] for name, some in rows.items()}
    what = f"lo.train of classes {classes}, {validated}, {tested}, first texts {first}"
    return Call(what, lambda: trained(_held_out(corpus), given), (), honest)


def _held_out(corpus: dict[str, pd.DataFrame]) -> Any:
    """Without test and validation a share of the texts is drawn, which `Splits` gives again."""
    return corpus if len(corpus) > 1 else splits(list(corpus["train"].itertuples(index=False, name=None)), None, None)


# --- prune ------------------------------------------------------------------------------------------------------------

BASES = ("bert", "gpt2", "marian")


@st.composite
def _pruning(draw: st.DrawFn, place: Place) -> Call:
    base = draw(st.sampled_from(("bert", "bert", "gpt2", "marian")))
    given = draw(_settings(PRUNING, 4))
    if not {"keep", "size", "speed", "weight", "sweep"} & given.keys():
        given["keep"] = draw(st.sampled_from((0.5, 0.7, 0.3)))
    tested = draw(st.booleans())
    if base == "bert":
        names = {"labels": {"bad": "LABEL_0", "good": "LABEL_1"}, **given}
        corpus = splits(texts(24), texts(8, seed=1), texts(12, seed=2) if tested else None)
    else:
        names, corpus = given, Splits(plain(16, 1), plain(6, 2), plain(6, 3) if tested else None)
    return Call(
        f"lo.prune({base}, {given}, test {tested})"[:900], lambda: pruned(place, base, corpus, names), (), as_said
    )


def pruned(place: Place, base: str, corpus: Splits, given: Mapping[str, Any]) -> list[Any]:
    right = {"epochs": 1, "batch_size": BATCH, "controls": 1, "onnx": False, "settle": 1, "allow_empty": True, **given}
    if right["settle"] and right.get("train") == "none":
        right["settle"] = None
    with (
        tempfile.TemporaryDirectory() as folder,
        patch("lorgnette.training.pruning.speed.SECONDS", 0.0),
        patch("lorgnette.training.pruning.budget.SECONDS", 0.0),
    ):
        done = lo.prune(place.model(base), corpus, Path(folder) / "small", **right)
        rows = done.record.get("sweep")
        folders = (
            [done.folder]
            if rows is None
            else sorted(path.parent for path in done.folder.rglob("training.json") if path.parent != done.folder)
        )
        return [_measured(place, base, corpus, Path(each)) for each in folders]


def _measured(place: Place, base: str, corpus: Splits, folder: Path) -> dict[str, Any]:
    """The record, and by the written model itself: its score, sizes and heads."""
    record = json.loads((folder / "training.json").read_text())
    whole, small = lo.load(place.model(base)), lo.load(str(folder))
    part = corpus.validation if corpus.test is None else corpus.test
    assert part is not None
    some = list(part) if corpus.test is None else list(part)[: record["settings"]["test_limit"]]
    before, after = (_score(one, base, some, corpus, record["settings"]) for one in (whole, small))
    return {
        "record": record, "texts": len(some), "before": before, "after": after,
        "parameters": [sum(each.numel() for each in one.model.parameters()) for one in (whole, small)],
        "layers": [_in_layers(one.model, base) for one in (whole, small)],
        "finite": all(bool(torch.isfinite(each).all()) for each in small.model.parameters()),
        "heads": _heads(small, some[0]),
    }  # fmt: skip


def _in_layers(model: Any, base: str) -> int:
    stacks = {
        "bert": ["bert.encoder"],
        "gpt2": ["transformer.h"],
        "marian": ["model.encoder.layers", "model.decoder.layers"],
    }
    return sum(each.numel() for stack in stacks[base] for each in model.get_submodule(stack).parameters())


def _heads(subject: lo.Subject, example: lo.Example) -> int:
    """Heads that attend in a pass."""
    inputs = subject.encode([example]).inputs
    with torch.no_grad():
        seen = lo.attention(subject, parts=["weights"], **inputs)
    return sum(seen[name].shape[1] for name in seen if name.endswith(".weights"))


def _score(
    subject: lo.Subject, base: str, some: list[lo.Example], corpus: Splits, settings: dict[str, Any]
) -> float | None:
    """Accuracy, or perplexity, text by text; None of translations."""
    if base == "marian":
        return None
    longest = settings["max_length"]
    model, tokenizer, losses, right, tokens = subject.model, subject.tokenizer, 0.0, 0, 0
    for example in some:
        inputs = tokenizer(example.text, return_tensors="pt", truncation=longest is not None, max_length=longest)
        ids = inputs["input_ids"]
        with torch.no_grad():
            logits = model(**inputs).logits[0].double()
        if base == "gpt2":
            losses += float(torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:], reduction="sum"))
            tokens += ids.shape[1] - 1
        else:
            assert corpus.train.labels is not None
            assert example.label is not None
            name = corpus.train.labels[example.label]
            right += int(logits.argmax()) == ["LABEL_0", "LABEL_1"].index(settings["labels"][name])
    return math.exp(losses / tokens) if base == "gpt2" else right / len(some)


def as_said(answers: list[dict[str, Any]]) -> str | None:
    """Whether the records of a pruning say what the checkpoints do."""
    for each in answers:
        record, settings = each["record"], each["record"]["settings"]
        before, after = record["before"], record["metrics"][record["before"]["split"]]
        metric = next(name for name in ("accuracy", "perplexity", "bleu") if name in before)
        if not each["finite"] or not all(
            map(math.isfinite, _numbers({"b": before, "a": after, "d": record["difference"]}))
        ):
            return f"numbers that are none: {before}, {after}"
        if metric != "bleu" and {before["texts"], after["texts"]} != {each["texts"]}:
            return f"{before['texts']} texts, not {each['texts']}"
        for name, said in (("before", before), ("after", after)):
            own = each[name]
            if own is not None and not math.isclose(said[metric], own, rel_tol=1e-3):
                return f"{metric} {name} {said[metric]}, and the checkpoint has {own}"
        if not math.isclose(record["difference"]["value"], after[metric] - before[metric], rel_tol=1e-6, abs_tol=1e-9):
            return f"a difference of {record['difference']['value']} between {before[metric]} and {after[metric]}"
        sizes = [record["parameters"][name] for name in ("before", "after")]
        if sizes != each["parameters"]:
            return f"{sizes} parameters, not {each['parameters']}"
        if (said := _within(record, settings["pruning"], each)) is not None:
            return said
    return None


def _within(record: dict[str, Any], asked: dict[str, Any], each: dict[str, Any]) -> str | None:
    """The budget was kept, and the heads that are said to be left are those that attend."""
    heads = sum(map(sum, record["heads"]["after"].values()))
    if each["heads"] != heads and asked["format"] == "pruned" and not asked["uniform"]:
        return f"{heads} heads are said to be left, and {each['heads']} attend"
    if asked["keep"] is None:
        return None
    if asked["only"] == ["heads"]:
        whole = sum(map(sum, record["heads"]["before"].values()))
        return None if asked["stacks"] or heads == max(1, round(asked["keep"] * whole)) else f"{heads} of {whole} heads"
    share = each["layers"][1] / each["layers"][0]
    return (
        None if share <= asked["keep"] + 1e-6 else f"{share:.4f} of the layers are left, {asked['keep']} was asked for"
    )
