"""What `prune` cannot do, said in one line and, where it can be known, before anything is trained."""

from collections.abc import Mapping, Sequence, Sized

from lorgnette.attending import Site
from lorgnette.errors import UserError
from lorgnette.models.families import PRUNED, anatomy_of, prunable_types, record_of
from lorgnette.training.arguments import processes
from lorgnette.training.build import is_preset, models_language, opened
from lorgnette.training.gates.run import wanted
from lorgnette.training.preparation import Prepared
from lorgnette.training.pruning.export import refuse_without_packages
from lorgnette.training.pruning.settings import PruningSettings
from lorgnette.types import PreTrainedModel


def refuse_settings(settings: PruningSettings) -> None:
    if is_preset(settings.training):
        raise UserError(
            f"{settings.training.model!r} is a preset, not a trained model: train it first (lorgnette train "
            f"{settings.training.model} …), then prune the folder that comes out."
        )
    if processes().num_processes > 1:
        raise UserError("pruning runs in one process: start it without torchrun.")
    if settings.onnx:
        refuse_without_packages()


def refuse_language_model(settings: PruningSettings) -> None:
    """What cannot be asked of a language model, said before anything about the corpus is."""
    if settings.scratch and models_language(settings.training):
        raise UserError(
            f"{settings.model!r} is a language model: what it knows was not learnt on this corpus, so a small one from "
            "random weights (`scratch`) says nothing. Omit it."
        )


def refuse_few(ready: Prepared) -> None:
    """Refuse too few texts to score on: an interval is over texts, so it needs two."""
    parts = ready.parts
    if parts.test is None:
        split, count = "validation", len(ready.validation)
    elif isinstance(parts.test, Sized):  # counted without reading it
        split, count = "test", len(parts.test)
    else:
        return
    if count < 2:
        share = next((f"; {note}" for note in parts.notes if "used for validation" in note), "")
        raise UserError(
            f"{parts.train.name!r} has {count} {split} {'text' if count == 1 else 'texts'}{share}. A score with an "
            "interval needs at least 2: give more texts."
        )


def refuse_family(settings: PruningSettings) -> None:
    """Refuse a model whose parts have no names, or whose heads cannot go where only heads are to."""
    checkpoint = opened(settings.training)
    if checkpoint.gguf is not None:
        return
    config = checkpoint.config()
    family, name = record_of(config), config.model_type.removeprefix(PRUNED)
    if family is None or name not in prunable_types():
        raise UserError(
            f"{settings.model!r} cannot be pruned: there is no record of its family ({name}) that says what its layers "
            f"consist of. These can be pruned: {', '.join(prunable_types('texts'))}."
        )
    if family.reads != "texts":
        raise UserError(
            f"{settings.model!r} ({name}) reads {family.reads}, and prune trains and scores on texts alone. Remove its "
            "heads with lorgnette.remove_heads in Python, and train and score what is left with your own code."
        )
    if family.cut is None and settings.counts_heads:
        reason = family.stays.get("heads", "the record of its family does not say how")
        raise UserError(
            f"heads cannot be removed from {settings.model!r} ({name}): {reason}. Set `keep`, `size` or `speed` and "
            "leave `only` out, so that feed-forward units and layers go."
        )


def refuse_format(settings: PruningSettings, whole: PreTrainedModel) -> None:
    if settings.saved_as == "stock" and not settings.uniform and not transformers_knows(whole):
        raise UserError(
            f"--format stock is for models that transformers knows by itself; {type(whole).__name__} needs Lorgnette "
            "whatever its size: leave it out."
        )


def transformers_knows(model: PreTrainedModel) -> bool:
    """Whether transformers alone opens the model or, if it is pruned, one like it."""
    return any(base.__module__.startswith("transformers.models.") for base in type(model).__mro__)


def refuse_count(settings: PruningSettings, whole: PreTrainedModel, heads: Mapping[Site, Sequence[int]]) -> None:
    """Refuse impossible numbers of heads before anything is trained."""
    if not settings.counts_heads:
        return
    modules = {id(each.module) for each in anatomy_of(whole).sites if each.site in heads}
    if len(modules) < len(heads):
        raise UserError(
            f"the layers of {type(whole).__name__} share their heads, so there is no number of heads to keep: leave "
            "--only out, and --keep is a share of the parameters."
        )
    if settings.keep is not None and wanted(settings, heads) == sum(map(len, heads.values())):
        raise UserError(f"`keep` {settings.keep:g} keeps all of the heads, so nothing would go: give a smaller share.")
    if settings.keep is None or settings.allow_empty:
        return
    if (count := wanted(settings, heads)) < len(heads):
        raise UserError(
            f"{count} head{'s' * (count > 1)} cannot be in {len(heads)} layers: a layer without heads is only its "
            "feed-forward part. Pass --allow-empty to allow that, or keep more heads."
        )
