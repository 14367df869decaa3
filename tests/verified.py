"""The table of verified models: `check` on a tiny random model of every text architecture of transformers, and of
those architectures of pictures and text that have a tiny model in tests/tiny/pictures.py; models of pictures or sound
alone, and formats of quantised weights.

python -m tests.verified                    all of them, written to verified.json and docs/models.md
python -m tests.verified opt bart           some of them, printed
python -m tests.verified --write opt bart   some of them, in the place of their rows
python -m tests.verified --write quantised  a section: pictures, senses or quantised (which needs torchao, bitsandbytes)
"""

import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from tiny import tokenizer  # noqa: E402
from tiny.architectures import model_of_type, text_types  # noqa: E402
from tiny.blocks import gguf_kernel  # noqa: E402
from tiny.eager import own_weights  # noqa: E402
from tiny.models import LLAMA, peaked  # noqa: E402
from tiny.packed import PACKINGS  # noqa: E402
from tiny.pictures import HEADS, UNSEEN, headed_model, picture_model, picture_types  # noqa: E402
from tiny.sensing import MODELS  # noqa: E402
from tiny.sensing import made as noise_for  # noqa: E402
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES  # noqa: E402

from lorgnette.bare.attention import attention  # noqa: E402
from lorgnette.errors import UserError  # noqa: E402
from lorgnette.explaining import Next, explain  # noqa: E402
from lorgnette.explaining.rules import unruled  # noqa: E402
from lorgnette.models.anatomy import PARTS, AttentionSite, Gate, NormGate  # noqa: E402
from lorgnette.models.families import head_prunable_types, record_of  # noqa: E402
from lorgnette.models.families.verified import FILE, LACKS, Verified, page  # noqa: E402
from lorgnette.subject import Subject  # noqa: E402
from lorgnette.subject.checks import Check  # noqa: E402


def verified(kind: str) -> Verified:
    """One row: whether watching is exact, and what is known of the model."""
    try:
        model = model_of_type(kind)
    except Exception as error:
        return Verified(kind, "not tried", why=f"no tiny model could be made ({_first(error)})")
    known = "record" if record_of(model.config) is not None else "run"
    try:
        translates = bool(getattr(model.config, "is_encoder_decoder", False))
        subject = Subject(model, tokenizer("marian" if translates else "gpt2"), name=kind)
        checks = subject.check()
    except UserError as error:
        return Verified(kind, "refused", why=_reason(str(error)))
    except Exception as error:
        return Verified(kind, "refused", why=f"the check does not run ({_first(error)})")
    failed = [one for one in checks if not one.ok]
    if failed:
        return Verified(kind, "refused", why=f"check: {failed[0].name}: {_reason(failed[0].detail)}")
    anatomy = subject.anatomy
    compared = all(one.made for one in checks if "eager" in one.name)
    lacks = _lacks([site for site in anatomy.sites if site.site.of_texts])
    relevance = "mixers" not in lacks and unruled(model, anatomy.mixers) is None
    return Verified(
        kind, "exact", known, lacks, kind in head_prunable_types(), relevance, eager=compared,
        hybrid=_attending(subject),
    )  # fmt: skip


def pictured(kind: str) -> Verified:
    """The row of a model of pictures and text."""
    try:
        model, inputs = headed_model(kind) if kind in HEADS else picture_model(kind)
    except Exception as error:
        return Verified(kind, "not tried", why=f"no tiny model could be made ({_first(error)})")
    try:
        subject = Subject(model, name=kind, inputs=inputs)
        checks = subject.check(inputs)
    except UserError as error:
        return Verified(kind, "refused", why=_reason(str(error)))
    failed = [one for one in checks if not one.ok]
    if failed:
        return Verified(kind, "refused", why=f"check: {failed[0].name}: {_reason(failed[0].detail)}")
    anatomy = subject.anatomy
    lacks = _lacks(anatomy.sites)
    stacks = tuple(dict.fromkeys(site.name for site in subject.sites))
    return Verified(
        kind, "exact", "run", lacks, relevance=anatomy.knows("mixing") and unruled(model) is None, stacks=stacks,
        eager=_equals_eager(subject, inputs, checks), unseen=UNSEEN.get(kind, ""), hybrid=_attending(subject),
    )  # fmt: skip


def sensed(kind: str) -> Verified:
    """The row of a model of pictures or sound alone."""
    model, inputs = noise_for(kind)
    subject = Subject(model, name=kind)
    try:
        checks = subject.check(inputs)
    except UserError as error:
        return Verified(kind, "refused", why=_reason(str(error)))
    failed = [one for one in checks if not one.ok]
    if failed:
        return Verified(kind, "refused", why=f"check: {failed[0].name}: {_reason(failed[0].detail)}")
    lacks = _lacks(subject.anatomy.sites)
    known = "run" if record_of(model.config) is None else "record"
    prunes = model.config.model_type in head_prunable_types()
    return Verified(kind, "exact", known, lacks, prunes, stacks=tuple(dict.fromkeys(s.name for s in subject.sites)))


def packed(kind: str) -> Verified:
    """The row of a format of quantised weights."""
    with gguf_kernel():
        return _packed(kind)


def _packed(kind: str) -> Verified:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**LLAMA | {"hidden_size": 64, "head_dim": 16, "intermediate_size": 128})
    model = peaked(transformers.LlamaForCausalLM(config).eval())  # as wide as the blocks of bitsandbytes
    try:
        PACKINGS[kind](model)
    except ImportError as error:
        return Verified(kind, "not tried", why=_first(error))
    subject = Subject(model, tokenizer("llama"), name=kind)
    checks = {one.name: one for one in subject.check()}
    failed = [one for one in checks.values() if not one.ok]
    if failed:
        return Verified(kind, "refused", why=f"check: {failed[0].name}: {_reason(failed[0].detail)}")
    lacks = _lacks(subject.anatomy.sites)
    try:
        explain(subject, ["w7 w8 w9"], "attnlrp", Next())
    except UserError:
        relevance = False
    else:
        relevance = True
    told = checks["quantised maps = x · W + b"].detail
    return Verified(kind, "exact", "run", lacks, relevance=relevance, tolerance=told)


def _lacks(sites: Sequence[AttentionSite]) -> tuple[str, ...]:
    """What is unknown of some site; a gate or a latent vector leaves less to know."""
    unknown = {part for part in PARTS if any(site.lack(part, gated=True) is not None for site in sites)}
    unknown |= {"scale" if site.gate_scales else "gate" for site in sites if isinstance(site.gate, Gate)}
    unknown |= {"norm"} if any(isinstance(site.gate, NormGate) for site in sites) else set()
    unknown |= {"latent"} if any(site.reads_latent for site in sites) else set()
    return tuple(part for part in LACKS if part in unknown)


def _attending(subject: Subject) -> str:
    """How many layers of each stack have attention, where some have none."""
    return ", ".join(f"{len(subject.layers[name])} of {total}" for name, total in subject.layers_in_all.items())


def _equals_eager(subject: Subject, inputs: dict[str, torch.Tensor], checks: list[Check]) -> bool:
    """Whether every site has the weights of the attention function in the model's own file; of one without such a
    function (BLIP), whether they are what its modules return.
    """
    with torch.no_grad():
        seen = attention(subject, **inputs)
    own, _ = own_weights(subject.model, inputs)
    if not own:
        return all(one.made for one in checks if "eager" in one.name)
    real = inputs["attention_mask"].bool()
    for site in subject.anatomy.sites:
        if site.module not in own:
            return False
        got, wanted = seen.records[site.site]["weights"], own[site.module]
        if site.site.of_texts and got.shape[2] == real.shape[1]:
            got, wanted = got.transpose(1, 2)[real], wanted.transpose(1, 2)[real]
        if not torch.allclose(got, wanted, atol=2e-6):
            raise AssertionError(f"{subject.name}: other weights at {site.site}")
    return True


SECTIONS = {
    "models": (text_types, verified),
    "pictures": (lambda: (*picture_types(), *HEADS), pictured),
    "senses": (lambda: tuple(MODELS), sensed),
    "quantised": (lambda: tuple(PACKINGS), packed),
}
"""The sections of the table: what is in each, and how a row of it is made."""


def rows_of(named: Sequence[str] = ()) -> Iterator[tuple[str, Verified]]:
    """The rows of these models, formats or sections, as they are made; of all of them, if none is named."""
    kinds = {section: types() for section, (types, _) in SECTIONS.items()}
    makers = {kind: SECTIONS[section][1] for section, members in kinds.items() for kind in members}
    for name in named or SECTIONS:
        for kind in kinds.get(name, (name,)):
            yield kind, makers.get(kind, verified)(kind)


def _first(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:100]}" if lines else type(error).__name__


def _reason(message: str) -> str:
    """The reason alone, without the class before it and the advice behind it."""
    message = message.split(" Run `lorgnette check`")[0]
    return message.partition(f"transformers {transformers.__version__}: ")[2] or message


def main(arguments: list[str]) -> None:
    kinds = [argument for argument in arguments if argument != "--write"]
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    made = {}
    for kind, row in rows_of(kinds):
        made[kind] = row
        print(row, flush=True)
    if kinds != arguments or not kinds:
        known = json.loads(FILE.read_text(encoding="utf-8")) if kinds else {}
        rows = {row["model_type"]: row for section in SECTIONS for row in known.get(section, ())}
        rows |= {kind: row.plain() for kind, row in made.items()}
        apart = {section: types() for section, (types, _) in SECTIONS.items() if section != "models"}
        document: dict[str, Any] = {"transformers": transformers.__version__}
        others = {kind for kinds in apart.values() for kind in kinds}
        document["models"] = [row for kind, row in rows.items() if kind not in others]
        document |= {section: [rows[kind] for kind in kinds] for section, kinds in apart.items()}
        document["untried_pictures"] = sorted(set(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES) - set(rows))
        FILE.write_text(json.dumps(document, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
        (ROOT / "docs" / "models.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
