"""Proof, for every way to run a model, that captured attention is what the model computes."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

from lorgnette.attending import Recorder
from lorgnette.errors import UserError
from lorgnette.models.linear import EXPLAINED, TOLERANCE, quantisation, rounds
from lorgnette.models.proof import NOT_FINITE, PRECISE, Largest, Proof, proof_of
from lorgnette.models.quantised import unexplained, unrounded
from lorgnette.models.switching import evaluating
from lorgnette.models.ways import ALONE, Run, picture_ways, sense_ways, ways
from lorgnette.subject import Subject
from lorgnette.texts.example import Example

TEXTS = (
    ("The cat sat on the mat, and nobody minded.", "Le chat était assis sur le tapis."),
    ("Yes.", "Oui."),
    ("Two short sentences. They pad the batch differently, which is what this text is for.", "Deux phrases courtes."),
)
EAGER = 1e-5
"""The largest difference from eager attention in float64: transformers takes its softmax in float32."""


@dataclass(frozen=True)
class Check:
    """One check: what must hold, whether it does, and the figure; not `made` where there is nothing to compare."""

    name: str
    ok: bool
    detail: str
    made: bool = True


def check(subject: Subject, inputs: Mapping[str, Tensor] | None = None) -> list[Check]:
    """Outputs unchanged and equal to those of eager attention, weights · value = context, heads · W_O = output, rows
    sum to one, padding gets nothing, every site seen once: with padding on either side, without, without a mask, with
    one token, with a cache.

    `inputs` with pictures: on these, as they are, with padding on the left, without the pictures, with a cache; of
    pictures or sounds alone, all of them and one.
    """
    if inputs is None:
        examples = [Example(f"check {n}", text, target=target) for n, (text, target) in enumerate(TEXTS)]
        found = ways(_telling(subject, subject.encode(examples).inputs))
    elif not any(isinstance(each, Tensor) for each in inputs.values()):
        raise UserError("inputs have no tensors: pass what the model's processor made of two texts or more.")
    elif "input_ids" in inputs:
        found = picture_ways(inputs, subject.anatomy.sees)
    else:
        found = sense_ways(inputs, _tokens(subject, inputs))

    def run(**inputs: object) -> ModelOutput:
        return subject.forward(inputs, output_hidden_states=True, return_dict=True)

    with unrounded(subject.model):
        proof = proof_of(subject.model, subject.anatomy, found, run)
    if proof.failed is not None:
        way, why = proof.failed
        return [Check("capture", False, f"with {way}: {why}")]
    if not proof.ways:
        precision = str(subject.dtype).removeprefix("torch.")
        way, why = next((way, why) for way, why in proof.left_out.items() if why == NOT_FINITE)
        what = f"{why} with {way} in {precision}: load it in another precision"
        return [Check("the model's own outputs are numbers", False, what)]
    tolerance = TOLERANCE[subject.dtype]
    # The statistics are float32 at least, whatever the model's precision.
    wide = 1e-9 if subject.dtype == torch.float64 else 1e-4
    relative = "largest relative difference"
    return [
        _small("outputs unchanged", relative, proof.output, tolerance),
        _eager("outputs = eager outputs", relative, subject, proof, proof.eager_output),
        _eager("weights = eager weights", "largest difference", subject, proof, proof.eager_weights),
        _small("weights · value = context", relative, proof.mixing, tolerance),
        _written(subject, proof, tolerance),
        *_dequantised(subject, found[0].inputs, run),
        _small("rows sum to one", "largest deviation", proof.rows, wide),
        _small("padding receives nothing", "largest weight", proof.padding, 0.0),
        _swept(subject, proof, wide),
        _sites(subject, proof),
        _small("model restored", "difference afterwards", proof.restored, 0.0),
        *([Check("every token has a vector", *_vectors(subject))] if subject.has_tokenizer else []),
        Check("ways to run it", True, _ways(proof)),
    ]


def _tokens(subject: Subject, inputs: Mapping[str, Tensor]) -> int:
    """How many tokens the first stack makes of pictures or sounds."""
    recorder: Recorder[int] = Recorder(lambda call: call.key.shape[2], subject.sites[:1])
    with torch.no_grad(), subject.tapped(recorder):
        subject.model(**inputs)
    return next(iter(recorder.records.values()))


def _telling(subject: Subject, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Replace a token that fills a text (the one for unknown words) by other tokens.

    Equal tokens have equal values, and any weights would give the same output.
    """
    told, size = dict(inputs), min(len(subject.tokenizer), getattr(subject.model.config, "vocab_size", None) or 10**9)
    generator = torch.Generator().manual_seed(0)
    ordinary = sorted(set(range(size)) - set(subject.tokenizer.all_special_ids))
    for name, mask in (("input_ids", "attention_mask"), ("decoder_input_ids", "decoder_attention_mask")):
        if name in inputs and ordinary:
            ids, real = inputs[name], inputs[mask].bool()
            found, counts = ids[real].unique(return_counts=True)
            filler = (ids == found[counts.argmax()]) & real
            if 2 * filler.sum() > real.sum():
                others = torch.tensor(ordinary)[torch.randint(len(ordinary), ids.shape, generator=generator)]
                told[name] = torch.where(filler, others.to(ids), ids)
    return told


def _small(name: str, what: str, found: Largest, most: float) -> Check:
    ok = found.size <= most
    return Check(name, ok, f"{what} {found.size:.1e}{'' if ok else f' (with {found.way})'}")


def _eager(name: str, what: str, subject: Subject, proof: Proof, found: Largest) -> Check:
    """Also passes, and says so, where the model has no eager attention to compare with."""
    if subject.dtype not in PRECISE:
        why = "in half precision eager attention rounds its scores; use float32"
        return Check(name, True, f"not compared: {why}", made=False)
    if not found.way:
        return Check(name, True, f"not compared: {next(iter(proof.without_eager.values()))}", made=False)
    return _small(name, what, found, max(TOLERANCE[subject.dtype], EAGER))


def _swept(subject: Subject, proof: Proof, wide: float) -> Check:
    """In half precision the matrix has rounded scores, like eager attention; the sweep computes them in float32."""
    name, what = "swept = matrix", "entropies in nats differ by"
    if subject.dtype not in PRECISE:
        why = f"{what} {proof.swept.size:.1e}, since the matrix rounds its scores in half precision; use float32"
        return Check(name, True, f"not compared: {why}", made=False)
    return _small(name, what, proof.swept, wide)


def _written(subject: Subject, proof: Proof, tolerance: float) -> Check:
    """Also passes, and says so, where W_O is not known; whatever needs W_O then refuses."""
    name = "heads · W_O = output"
    lacking = [site for site in subject.anatomy.sites if site.lack("output", gated=True) is not None]
    if lacking:
        why = f"not known, and refused where it is needed: {lacking[0].lack('output', gated=True)}"
        return Check(name, True, why, made=False)
    return _small(name, "largest relative difference", proof.written, tolerance)


def _dequantised(subject: Subject, inputs: Mapping[str, Tensor], run: Run) -> list[Check]:
    """Of a quantised model: whether its maps give on real inputs what W_Q, W_K, W_V and W_O give, but for rounding."""
    modules: dict[int, nn.Module] = {}
    for site in subject.anatomy.sites:
        for part, module in site.maps.items():
            if quantisation(module) is not None and site.lack(part, gated=True) is None:
                modules[id(module)] = module
    if not modules:
        return []
    largest = Largest()

    def compare(module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        largest.take(torch.tensor(unexplained(module, given[0], output)), type(module).__name__)

    with ExitStack() as undo, torch.no_grad(), evaluating(subject.model):
        for module in modules.values():
            undo.callback(module.register_forward_hook(compare).remove)
        run(**inputs)
    round_inputs = any(map(rounds, modules.values()))
    what = f"differences are {largest.size:.2g} of what rounding {'inputs to 8 bits' if round_inputs else ''} explains"
    detail = f"{' '.join(what.split())} (at most {EXPLAINED:g}), in {len(modules)} maps"
    return [Check("quantised maps = x · W + b", largest.size <= EXPLAINED, detail)]


def _sites(subject: Subject, proof: Proof) -> Check:
    wanted = sorted(subject.sites)
    translates = getattr(subject.model.config, "is_encoder_decoder", False)
    reading = sorted(site for site in wanted if site.of_texts and (site.kind == "self" or translates))
    wrong = [way for way, seen in proof.sites.items() if sorted(seen) != (reading if way == ALONE else wanted)]
    way = wrong[0] if wrong else proof.ways[0]
    detail = f"{len(proof.sites[way])} of {len(wanted)} sites{f' (with {way})' if wrong else ''}"
    return Check("every site seen once", not wrong, "; ".join(filter(None, (detail, subject.attending))))


def _ways(proof: Proof) -> str:
    """The ways to run the model that were compared, and those that the model itself does not support."""
    left_out = [f"{way} ({why})" for way, why in proof.left_out.items()]
    return ", ".join(proof.ways) + (f"; the model itself does not run with {', '.join(left_out)}" if left_out else "")


def _vectors(subject: Subject) -> tuple[bool, str]:
    tokens, vectors = len(subject.tokenizer), getattr(subject.model.config, "vocab_size", None)
    return vectors is None or tokens <= vectors, f"{tokens} tokens, {vectors} vectors"
