"""Which heads stay where heads are counted: by gates, or by a ranking."""

import json
import shutil
import warnings

from torch import Tensor

from lorgnette.attending import Site
from lorgnette.errors import UserError
from lorgnette.files import write_whole
from lorgnette.subject import Subject
from lorgnette.training.folder import RunFolder, read_record
from lorgnette.training.gates.gates import HeadGates
from lorgnette.training.gates.run import fit_gates, wanted
from lorgnette.training.pruning.choice import Choice
from lorgnette.training.pruning.ranking import TEXTS, agreement_scores, importance_scores, top_heads
from lorgnette.training.pruning.removal import plain_copy, remove_heads
from lorgnette.training.pruning.work import Work
from lorgnette.types import PreTrainedModel

_KEPT = "kept.json"


def without_heads(work: Work, whole: PreTrainedModel) -> Choice:
    """The model without the heads that go, by gates or by a ranking."""
    settings = work.settings
    if settings.method != "gates":
        heads_left = _ranked(work, whole)
        return Choice(remove_heads(whole, heads_left), None, [], heads_left)
    run = RunFolder(work.root / "gates")
    run.begin(settings.record(), work.ready.fingerprint)
    model = plain_copy(whole)
    gates, curve = fit_gates(settings, work.ready, run, model)
    if settings.keep is None:
        heads_left = _with_a_head_each(work, gates, _closed(work, gates))
    else:
        heads_left = _strongest(work, gates, wanted(settings, work.heads))
    return Choice(remove_heads(model, heads_left, factors=_factors(gates, heads_left)), gates, curve, heads_left)


def _closed(work: Work, gates: HeadGates) -> dict[Site, list[int]]:
    """The heads whose gates are open; notes say where the two rules disagree, or that no gate closed."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        heads_left = gates.remaining_heads(work.settings.rule)
    work.notes += [str(one.message) for one in said]
    if sum(map(len, heads_left.values())) == len(gates.log_alpha):
        work.notes.append(
            f"no gate closed (λ = {work.settings.pressure:g}), so no head was removed: give a larger --lambda, more "
            "--epochs, or --keep."
        )
    return heads_left


def _strongest(work: Work, gates: HeadGates, count: int) -> dict[Site, list[int]]:
    """As many heads as are wanted; a note if gates have not said that the others can go."""
    tied = gates.tied(count)
    if tied == len(gates.log_alpha):
        shutil.rmtree(work.root, ignore_errors=True)  # there is nothing to go on from
        raise UserError(
            "all gates are equal after this training, so there is no basis to choose heads: train longer "
            "(--epochs, more texts), or choose by --method importance."
        )
    if tied:
        work.notes.append(f"{tied} gates have the same log α, and not all of them could stay: the first by number did.")
    heads_left = gates.strongest(count, empty=work.settings.allow_empty)
    values = gates.values()
    left_open = sum(
        float(value) > 0
        for site, numbers in gates.heads.items()
        for number, value in zip(numbers, values[site], strict=True)
        if number in heads_left[site]
    )
    if gates.open_heads > left_open:
        work.notes.append(
            f"{gates.open_heads} gates were open when {count} heads were to stay: {gates.open_heads - left_open} of "
            "them went all the same. Train longer (--epochs), or with a larger --gates-learning-rate."
        )
    return heads_left


def _with_a_head_each(work: Work, gates: HeadGates, heads_left: dict[Site, list[int]]) -> dict[Site, list[int]]:
    """Where layers may not be empty, the best head of a layer stays although its gate is closed; a note says so."""
    empty = [site for site, numbers in heads_left.items() if not numbers]
    if work.settings.allow_empty or not empty:
        return heads_left
    named = ", ".join(str(site) for site in empty[:4]) + (" …" if len(empty) > 4 else "")
    work.notes.append(
        f"all gates closed in {named}: the head with the largest log α stays there all the same, since a layer without "
        "heads is only its feed-forward part. --allow-empty lets all of them go."
    )
    return gates.with_one_each(heads_left)


def _factors(gates: HeadGates, heads_left: dict[Site, list[int]]) -> dict[Site, Tensor]:
    """ẑ goes into the weights. A head that is kept though its gate is closed would say nothing: it gets 1."""
    factors = {}
    for site, values in gates.values().items():
        dead = [
            number in heads_left[site] and value == 0 for number, value in zip(gates.heads[site], values, strict=True)
        ]
        factors[site] = values.masked_fill(values.new_tensor(dead).bool(), 1.0)
    return factors


def _ranked(work: Work, whole: PreTrainedModel) -> dict[Site, list[int]]:
    settings, file = work.settings, work.root / _KEPT
    if file.is_file():
        return {Site(*place): numbers for *place, numbers in read_record(file)["kept"]}
    subject = Subject(whole, work.ready.builder.tokenizer, name=settings.training.model)
    scores = importance_scores if settings.method == "importance" else agreement_scores
    texts = work.ready.parts.validation.take(min(TEXTS, settings.limit or TEXTS))
    importance = scores(subject, texts, progress=settings.training.progress)
    count = wanted(settings, work.heads)
    heads_left = top_heads(importance, count, settings.stacks, empty=settings.allow_empty)
    rows = [[site.stack, site.kind, site.layer, numbers] for site, numbers in heads_left.items()]
    write_whole(file, json.dumps({"kept": rows}))
    return heads_left
