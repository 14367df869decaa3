"""What a pruning can save and did save, in a few lines; and the page beside its checkpoint."""

from pathlib import Path

from lorgnette.training.pruning.compared import comparison_lines
from lorgnette.training.pruning.parts import Removable
from lorgnette.training.pruning.runtimes import runtime_lines
from lorgnette.training.pruning.score import metric_of
from lorgnette.types import Json

RECORDED = Json
UNSTEADY = 1.5
"""The middle half of the speed-ups may span so much."""


def forecast_lines(saved: RECORDED, stay: int, heads: int, any_number: bool) -> list[str]:
    """Said before anything is trained. `any_number`: training decides how many heads stay (λ), so that all may go."""
    what = "Without any head" if any_number else f"With {stay} of {heads} heads"
    speed = saved["speed"]
    (before, after), (texts, tokens) = (speed["milliseconds"][when][1] for when in ("before", "after")), speed["batch"]
    return [
        f"{what} this model can save at most {_fewer(saved['parameters'])} parameters, "
        f"{speed['saved_operations']:.1%} of the operations and {_fewer(saved['bytes'], 1e6)} MB of the file;",
        f"{texts} texts of {tokens} tokens take {before:.1f} → {after:.1f} ms here: {_speed(speed)}.",
        *_unsteady(speed),
    ]


def kind_lines(most: RECORDED) -> list[str]:
    """What each kind of part can save at most, or why none can go; said before anything is trained."""
    nouns = {"heads": "all heads", "units": "all feed-forward units", "layers": "all layers but one of each stack"}
    said = []
    for kind, saved in most.items():
        if "stays" in saved:
            said.append(f"{nouns[kind].removeprefix('all ').partition(' but')[0].capitalize()} stay: {saved['stays']}.")
            continue
        speed = saved["speed"]
        said.append(
            f"Removing {nouns[kind]} saves {_fewer(saved['parameters'])} parameters, {_fewer(saved['bytes'], 1e6)} MB "
            f"and {speed['saved_operations']:.1%} of the operations: {_speed(speed)}."
        )
    unsteady = [line for saved in most.values() if "speed" in saved for line in _unsteady(saved["speed"])]
    return [*said, *unsteady[:1]]


def share_lines(share: float, parts: Removable, every_kind: bool) -> list[str]:
    """What a share of the parameters of the layers comes to, of the whole model."""
    removable = parts.whole - parts.fixed
    kept = parts.fixed + share * removable
    said = (
        f"--keep {share:g} keeps {share * removable:,.0f} of the {removable:,.0f} parameters of the layers. With the "
        f"{parts.fixed:,.0f} of embeddings and the like, which stay, that is {kept / parts.whole:.1%} of the model."
    )
    return [said, "For a share of the heads, as in version 0.1, add --only heads."] if every_kind else [said]


def parts_lines(record: RECORDED) -> list[str]:
    """What is left of each stack: heads and feed-forward units in every layer."""
    said = []
    for stack, layers in record["layers"]["before"].items():
        left = record["layers"]["after"].get(stack, [])
        gone = f", {len(layers) - len(left)} removed" if len(left) < len(layers) else ""
        said.append(f"{stack}: {len(left)} of {len(layers)} layers{gone}")
        for kind, noun in (("heads", "heads"), ("units", "feed-forward units")):
            before, after = (record[kind][when].get(stack, []) for when in ("before", "after"))
            if before:
                after = [*after, *[0] * (len(before) - len(after))]
                each = ", ".join(f"{n:,}" for n in after)
                said.append(f"{stack} {noun}: {sum(after):,} of {sum(before):,}; by layer {each}")
    return said


def savings_lines(record: RECORDED) -> list[str]:
    """Said afterwards, with the spread over passes."""
    speed, sizes = record["speed"], record["parameters"]
    times = [speed["milliseconds"][when] for when in ("before", "after")]
    said = [f"{middle:.1f} ms ({first:.1f}–{last:.1f})" for first, middle, last in times]
    return [
        f"parameters {sizes['before']:,} → {sizes['after']:,} ({1 - sizes['after'] / sizes['before']:.1%} fewer)",
        f"weights {record['bytes']['before'] / 1e6:.1f} → {record['bytes']['after'] / 1e6:.1f} MB, operations "
        f"{speed['saved_operations']:.1%} fewer",
        f"{speed['batch'][0]} texts of {speed['batch'][1]} tokens: {said[0]} → {said[1]}, medians and middle halves of "
        f"{speed['passes']} passes in turns",
        f"{_speed(speed)}, if time were proportional to operations",
        *_unsteady(speed),
        *runtime_lines(record.get("times", [])),
    ]


def _speed(speed: RECORDED) -> str:
    """How much faster it is; a ratio that the passes cannot tell from 1 is no gain."""
    low, high = speed["spread"]
    spread = f"middle half {low:.2f}–{high:.2f}"
    possible = f"at best × {speed['possible']:.2f}"
    if low <= 1 <= high or speed["saved_operations"] <= 0:
        return f"no measurable difference in speed ({spread} times as fast); {possible}"
    return f"speed × {speed['measured']:.2f} ({spread}); {possible}"


def _unsteady(speed: RECORDED) -> list[str]:
    """Times that say more about the machine than about the models."""
    low, high = speed["spread"]
    return ["The passes differ too much to go by these times: other work runs here."] if high > UNSTEADY * low else []


def _fewer(sizes: dict[str, int], unit: float | None = None) -> str:
    less, whole = sizes["before"] - sizes["after"], sizes["before"]
    said = f"{less:,} of {whole:,}" if unit is None else f"{less / unit:.1f} of {whole / unit:.1f}"
    return f"{said} ({less / whole:.1%})"


AUTO = {
    "accuracy": "AutoModelForSequenceClassification",
    "bleu": "AutoModelForSeq2SeqLM",
    "perplexity": "AutoModelForCausalLM",
}
"""What opens a model in transformers, by how it is scored."""
OPENED = {
    "pruned": """The projections are smaller than those of the family, so that transformers alone does not know the
model type. With Lorgnette installed:

    import lorgnette.models  # registers the type
    from transformers import {auto}, AutoTokenizer
    model = {auto}.from_pretrained("{folder}")
    tokenizer = AutoTokenizer.from_pretrained("{folder}")

or `lorgnette.load("{folder}")`. The folder holds no code. `lorgnette prune --format stock` writes a checkpoint that
transformers opens by itself.
""",
    "own": """An ordinary classifier of Lorgnette, whose layers have equal sizes:

    import lorgnette
    subject = lorgnette.load("{folder}")
""",
    "stock": """An ordinary checkpoint of its family. Removed layers are not in it, every layer has as many feed-forward
units as the largest, and the heads that were removed are zeros.

    from transformers import {auto}, AutoTokenizer
    model = {auto}.from_pretrained("{folder}")
    tokenizer = AutoTokenizer.from_pretrained("{folder}")

It gives the pruned model's outputs. The savings below are those of the smaller model with ragged sizes
(`--format pruned`, and model.onnx if it is here); with `--uniform` both are the same.
""",
}


def readme(record: RECORDED, folder: Path, *, form: str, onnx: bool) -> str:
    """README.md of the folder: how to open what is in it, and what it saves."""
    auto = AUTO[metric_of(record["before"])[0]]
    before, after = (sum(map(sum, record["heads"][when].values())) for when in ("before", "after"))
    share = record["parameters"]["after"] / record["parameters"]["before"]
    what = f"{share:.0%} of its parameters" if "parts" in record else f"{after} of {before} heads"
    lines = [
        f"# {Path(record['model']).name} with {what}",
        f"Pruned on {record['corpus']} with Lorgnette {record['versions'].get('lorgnette', '')}.".replace(" .", "."),
        "## How to open it",
        OPENED[form].format(auto=auto, folder=folder.name).strip(),
    ]
    if onnx:
        lines.append("`model.onnx` takes token ids and masks, gives logits, and runs in onnxruntime without either.")
    lines += ["## What it saves", "\n".join(f"- {line}" for line in savings_lines(record))]
    told = [*(parts_lines(record) if "parts" in record else ()), *comparison_lines(record)]
    if told:
        lines += ["## What is left", "\n".join(f"- {line}" for line in told)]
    return "\n\n".join(lines) + "\n"
