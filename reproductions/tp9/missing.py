"""What of TP 9 has not been run, in words."""

from reproductions.tp9.grid import BLOCKS, Model, models
from reproductions.tp9.runs import Outcome
from reproductions.tp9.tables import main_models, position_name

COMMAND = "lorgnette reproduce tp9"


def not_run(outcome: Outcome) -> list[str]:
    """A paragraph, or none if everything was run."""
    # Scaled positions whose factor is 1 are the literal ones, and in no table.
    shown = [model for model in models(outcome.size) if model.layers not in (None, 3)] + main_models(outcome)
    lacking = [model for model in shown if not outcome.complete(model)]
    parts = [*_table(outcome, lacking), *_depth(outcome, lacking)]
    parts += ["TF-IDF"] if outcome.tfidf is None else []
    if not parts:
        return []
    seeds = len(outcome.seeds)
    wanted, there = len(shown) * seeds, sum(len(outcome.of(model)) for model in shown)
    return [
        f"**Not all of it was run: {there} of the {wanted} trainings are there.** Missing: {'; '.join(parts)}. Their "
        "cells in the tables are empty, the number of seeds stands in each row, and no claim is made about models of "
        f"fewer than two seeds. `{COMMAND}` trains what is missing, keeps what is there, and writes this page again."
    ]


def _table(outcome: Outcome, lacking: list[Model]) -> list[str]:
    """The models of the large table: baselines, then three layers by pooling and vectors."""
    kinds: dict[str, list[Model]] = {}
    for model in main_models(outcome):
        kinds.setdefault(_kind(model), []).append(model)
    parts = []
    for kind, members in kinds.items():
        missing = [model for model in members if model in lacking]
        if not missing:
            continue
        if len(missing) == len(members) and not any(outcome.of(model) for model in missing):
            parts.append(f"{kind}, all {len(members)} models")
        else:
            parts.append(f"{kind}: {', '.join(_one(outcome, model) for model in missing)}")
    return parts


def _kind(model: Model) -> str:
    if model.layers is None:
        return f"baselines with {model.embeddings} vectors"
    return f"{'`<cls>`' if model.pooling == 'cls' else model.pooling} with {model.embeddings} vectors"


def _one(outcome: Outcome, model: Model) -> str:
    name = model.family if model.layers is None else f"{model.family}, {position_name(model, outcome)} positions"
    return f"{name} ({_share(outcome, model)})"


def _share(outcome: Outcome, model: Model) -> str:
    return f"{len(outcome.of(model))} of {len(outcome.seeds)} seeds"


def _depth(outcome: Outcome, lacking: list[Model]) -> list[str]:
    parts = []
    for family in BLOCKS:
        shares: dict[str, list[str]] = {}
        for layers in outcome.size.depths:
            model = Model(family, "frozen", layers=layers)
            if layers != 3 and model in lacking:
                shares.setdefault(_share(outcome, model), []).append(str(layers))
        if shares:
            said = ", ".join(f"{share} at {', '.join(depths)} layers" for share, depths in shares.items())
            parts.append(f"depth, {family}: {said}")
    return parts
