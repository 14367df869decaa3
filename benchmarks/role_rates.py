"""How often does a head get a role where there is none, and are planted roles found? Rates over many seeds.

    python -m benchmarks.role_rates --out out/roles.json --seeds 20
    python -m benchmarks.role_rates --models MODELS/minilm MODELS/opus-mt-en-fr --corpus ud_en_ewt --data DATA \\
        --texts 100 --seeds 5 --out out/roles.json

Without models it takes the planted model and its corpus: its heads are known. Conditions: `random weights` (the same
architecture as its class initialises it), `random attention` (sharp rows drawn at random; half of the heads favour
the same words whoever asks), `shuffled words` (the trained model on words in no order). With shuffled words a label is
wrong only if it is syntactic: heads that attend to a neighbour or to [SEP] still do. `broad` and `dead` have no control
and are true of untrained heads: they are counted and are no mistake. OUT gets the counts; what is in it stays.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.harness import Figure
from benchmarks.planted_heads import HEADS, RandomAttention, annotated, planted_subject
from lorgnette.files import written_whole
from lorgnette.lens.roles.labels import UNTESTED
from lorgnette.lens.roles.lens import Roles
from lorgnette.looking.controls import shuffled, with_random_weights
from lorgnette.looking.look import look
from lorgnette.results import Result
from lorgnette.subject import Subject, load
from lorgnette.texts import Corpus, Example, corpus
from lorgnette.texts.frequency import FrequencyRanks
from lorgnette.texts.planted import planted_corpus

RANDOM_WEIGHTS, RANDOM_ATTENTION, SHUFFLED, REAL = "random weights", "random attention", "shuffled words", "real"
WRONG = {SHUFFLED: ("syntactic",)}
"""Which labels are a mistake; in the other conditions all that are tested."""
PLANTED = {
    "previous": {"positional", "previous"},
    "next": {"positional", "next"},
    "sep": {"special", "last"},
    "uniform": {"broad"},
    "dead": {"positional", "previous", "dead"},
    "tree": {"syntactic"},
    "rare": {"rare"},
    "first": {"special"},
}
"""What each head of the planted model must be called."""
EVEN = {"rare": {"broad"}}
"""What it may be called besides: a head for rare words reads evenly where there is none, and texts differ in that."""
Counts = dict[str, int]


def counted(result: Result) -> Counts:
    """Heads, and how many of them have each label, and any that is tested."""
    label = result.data["label"]
    there = result.data["peak_count"].sum("part") > 0
    tested = [role for role in label["role"].values.tolist() if role not in UNTESTED]
    counts = {role: int((label.sel(role=role) & there).sum()) for role in label["role"].values.tolist()}
    return {
        "heads": int(there.sum()),
        "any tested": int((label.sel(role=tested).any("role") & there).sum()),
        **{role: count for role, count in counts.items() if count},
    }


def found(subject: Subject, texts: Sequence[Example], condition: str, seed: int) -> Counts:
    """The labels of one model under one condition and seed."""
    if condition == RANDOM_WEIGHTS:
        subject = with_random_weights(subject, seed)
    if condition == SHUFFLED:
        texts = [shuffled(example, seed) for example in texts]
    name = Corpus.of(list(texts), name=condition)
    if condition != RANDOM_ATTENTION:
        return counted(look(subject, name, [Roles()], progress=False)["roles"])
    with subject.tapped(RandomAttention(seed)):
        return counted(look(subject, name, [Roles()], progress=False)["roles"])


def planted(seed: int, texts: int = 200) -> tuple[Subject, list[Example], FrequencyRanks[int]]:
    """The planted model, texts drawn by the seed, and ranks in which the rare words are rare."""
    every = annotated(planted_corpus("test", seed=seed).take(texts))
    subject = planted_subject(every)
    ranks = {n: 1000 + n if word.endswith("!") else n % 450 + 1 for word, n in subject.tokenizer.get_vocab().items()}
    return subject, list(every), FrequencyRanks(ranks, "planted")


def planted_missed(seed: int, texts: int = 200) -> int:
    """How many of the planted heads do not have just the labels that they were made for."""
    subject, every, ranks = planted(seed, texts)
    look_at = Corpus.of(every, name="planted")
    data = look(subject, look_at, [Roles(ranks)], progress=False)["roles"].data.sel(stack="encoder", layer=1)
    labels = {name: set(data["role"].values[data["label"][n]].tolist()) for n, name in enumerate(HEADS)}
    return sum(labels[name] - EVEN.get(name, set()) != wanted for name, wanted in PLANTED.items())


def mistakes(condition: str, counts: Counts) -> int:
    wrong = WRONG.get(condition)
    return counts["any tested"] if wrong is None else sum(counts.get(role, 0) for role in wrong)


def rates() -> Iterator[Figure]:
    """The planted model over a few seeds: heads that are missed, and wrong labels under each control."""
    seeds = range(4)
    missed = sum(planted_missed(seed) for seed in seeds)
    yield Figure("roles-planted-missed", missed, 0, details={"heads": len(HEADS) * len(seeds)})
    for condition in (RANDOM_WEIGHTS, RANDOM_ATTENTION, SHUFFLED):
        each = [found(*planted(seed)[:2], condition, seed) for seed in seeds]
        heads, wrong = sum(one["heads"] for one in each), sum(mistakes(condition, one) for one in each)
        yield Figure(f"roles-{condition.replace(' ', '-')}", wrong / heads, 0.01, details={"heads": heads})


BENCHES = {"roles": rates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--corpus", default="ud_en_ewt")
    parser.add_argument("--data")
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    told = parser.parse_args()
    done: dict[str, Counts] = json.loads(told.out.read_text()) if told.out.exists() else {}
    for key, count in _runs(told, done):
        done[key] = count
        told.out.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(told.out) as partial:
            partial.write_text(json.dumps(done, indent=1))
        print(key, count, flush=True)
    _table(done)


def _runs(told: argparse.Namespace, done: dict[str, Counts]) -> Iterator[tuple[str, Counts]]:
    """One count for each model, condition and seed that is not there yet."""
    seeds = range(told.seeds)
    for name in told.models:
        short = Path(name).name
        conditions = {REAL: [0], RANDOM_WEIGHTS: seeds, RANDOM_ATTENTION: seeds, SHUFFLED: seeds}
        waiting = [(c, s) for c, own in conditions.items() for s in own if f"{short}|{c}|{s}" not in done]
        if waiting:
            subject = load(name, allow_pickle=True)
            texts = list(corpus(told.corpus, split="test", data=told.data).take(told.texts))
            for condition, seed in waiting:
                yield f"{short}|{condition}|{seed}", found(subject, texts, condition, seed)
    for seed in seeds if not told.models else ():
        if f"planted|missed|{seed}" not in done:
            yield f"planted|missed|{seed}", {"heads": len(HEADS), "missed": planted_missed(seed)}
        for condition in (RANDOM_WEIGHTS, RANDOM_ATTENTION, SHUFFLED):
            if f"planted|{condition}|{seed}" not in done:
                yield f"planted|{condition}|{seed}", found(*planted(seed)[:2], condition, seed)


def _table(done: dict[str, Counts]) -> None:
    """Every model and condition in one line: heads, mistakes, and all labels."""
    groups: dict[tuple[str, str], list[Counts]] = {}
    for key, counts in done.items():
        model, condition, _ = key.split("|")
        groups.setdefault((model, condition), []).append(counts)
    for (model, condition), each in groups.items():
        names = dict.fromkeys(name for one in each for name in one)
        total = {name: sum(one.get(name, 0) for one in each) for name in names}
        if condition in (RANDOM_WEIGHTS, RANDOM_ATTENTION, SHUFFLED):
            wrong = sum(mistakes(condition, one) for one in each)
            print(
                f"{model}, {condition}: {wrong} of {total['heads']} heads wrong ({wrong / total['heads']:.2%})",
                end="; ",
            )
        else:
            print(f"{model}, {condition}", end="; ")
        print(f"{len(each)} seeds; {total}")


if __name__ == "__main__":
    main()
