"""Alignment: a translation model whose heads copy and reverse, set by hand; the laws; bad input."""

from dataclasses import replace

import pytest
import torch
import transformers as hf
from tiny import MARIAN, examples, subject
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from lorgnette.errors import UserError
from lorgnette.lens.alignment.lens import Alignment
from lorgnette.looking.look import look
from lorgnette.subject import Subject
from lorgnette.testing import check_lens, run_lens
from lorgnette.texts.example import Example

CODES = 16  # one code per token: start, end, the full stop and thirteen words
WORDS = CODES - 3
NAMES = ["<start>", "</s>", ".", *(f"w{number}" for number in range(WORDS))]
HEADS = ("same", "successor", "predecessor", "sink")


def word_tokenizer():
    inner = Tokenizer(models.WordLevel({name: number for number, name in enumerate(NAMES)}, unk_token="."))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=inner, model_max_length=64, pad_token="<start>", eos_token="</s>"
    )


def translator(plant=True, seed=0):
    """One layer each side. States are one-hot codes of the token, and each head of the cross-attention looks a word up:

    the word just read (`same`: AWI), the one after or before it in the list (AWO of a copied or reversed list), or
    the word just read behind a full stop that gets more weight and whose value vector is zero (`sink`).
    """
    torch.manual_seed(seed)
    width = CODES * len(HEADS)
    config = {**MARIAN, "vocab_size": CODES, "d_model": width, "encoder_layers": 1, "decoder_layers": 1}
    model = hf.MarianMTModel(hf.MarianConfig(**config)).eval().double()
    if plant:
        with torch.no_grad():
            plant_codes(model, width)
            plant_heads(model.model.decoder.layers[0].encoder_attn, width)
    return Subject(model, word_tokenizer(), name="planted translator")


def plant_codes(model, width):
    """Nothing but one-hot codes goes through: no positions, and every other part of the layers adds zero."""
    inner = model.model
    inner.shared.weight.zero_()
    inner.shared.weight[:, :CODES] = torch.eye(CODES)
    for side in (inner.encoder, inner.decoder):
        side.embed_positions.weight.zero_()
        layer = side.layers[0]
        for part in (layer.self_attn.out_proj, layer.fc2):
            part.weight.zero_(), part.bias.zero_()


def plant_heads(attention, width, strength=40.0):
    query, key, value = (getattr(attention, f"{name}_proj").weight.view(len(HEADS), CODES, width) for name in "qkv")
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.bias.zero_()
    query.zero_(), key.zero_()
    contrast = (1 / width * (1 - 1 / width)) ** -0.5  # between a one and a zero behind LayerNorm
    scale = strength * CODES**0.5 / contrast**2
    key[:, :, :CODES] = torch.eye(CODES)
    for number, name in enumerate(HEADS):
        for code in range(CODES):
            query[number, wanted(name, code), code] = scale
    # From everywhere, a little more for the full stop than for the word itself.
    attention.q_proj.bias.view(len(HEADS), CODES)[HEADS.index("sink"), 2] = 1.02 * scale * contrast
    value[HEADS.index("sink"), :, 2] = 0.0
    rest = [code for code in range(CODES) if code != 2]
    value[..., CODES:] = 0.0
    value[HEADS.index("sink")][:, rest] -= value[HEADS.index("sink")][:, rest].mean(-1, keepdim=True)


def wanted(name, code):
    """The code that a head looks for when the decoder has just read this one."""
    first, last = 3, CODES - 1
    if name in ("same", "sink"):
        return code
    if code < first:  # the start: the first word of a copy, the last of a reversal
        return first if name == "successor" else last
    return min(code + 1, last) if name == "successor" else max(code - 1, first)


def listed(start, stop):
    return [f"w{number}" for number in range(start, stop)]


def copies():
    """w0 w1 … and a full stop, translated by the same list without one; alignments go straight."""
    out = []
    for length in range(3, WORDS + 1):
        words = listed(0, length)
        gold = ([(k, k) for k in range(length)], [])
        out.append(Example(str(length), " ".join([*words, "."]), target=" ".join(words), extra={"alignment": gold}))
    return out


def reversals():
    """A list that ends with the last word, translated backwards; alignments cross."""
    out = []
    for length in range(3, WORDS + 1):
        words = listed(WORDS - length, WORDS)
        gold = " ".join(f"{length - 1 - k}-{k}" for k in range(length))
        out.append(
            Example(str(length), " ".join([*words, "."]), target=" ".join(words[::-1]), extra={"alignment": gold})
        )
    return out


def rates(planted, texts, **options):
    data = look(planted, texts, [Alignment(**options)], progress=False)["alignment"].data
    return {
        (head, measure, reading): data.aer.sel(
            stack="cross", layer=1, head=number + 1, measure=measure, reading=reading
        ).item()
        for number, head in enumerate(HEADS)
        for measure in ("weights", "norms")
        for reading in ("output", "input")
    }, data


@pytest.mark.parametrize(("texts", "output_head"), [(copies(), "successor"), (reversals(), "predecessor")])
def test_planted_alignments_are_found(texts, output_head):
    found, data = rates(translator(), texts)
    for measure in ("weights", "norms"):
        assert found[output_head, measure, "output"] <= 0.05
        assert found["same", measure, "input"] <= 0.05
        # The right head read the wrong way is off by one word everywhere.
        assert found[output_head, measure, "input"] > 0.8
        assert found["same", measure, "output"] > 0.8
    # More than half of the weight is on the full stop, from which nothing arrives.
    assert found["sink", "weights", "input"] > 0.9
    assert found["sink", "norms", "input"] <= 0.05
    assert (data.layer_aer_count == len(texts)).all()


def test_the_control_is_at_chance():
    found, _ = rates(translator(plant=False), reversals())
    assert min(found.values()) > 0.6


def test_layer_rates_are_those_of_the_summed_vectors():
    """Mean weights, and ‖Σ_h α f‖, of one text, word by word (here a word is a piece)."""
    planted, example = translator(plant=False), reversals()[4]
    batch = planted.encode([example])
    data = run_lens(Alignment(), planted, [batch]).compute().data
    trace = planted.trace(example)
    weights, value = trace["cross.1.weights"], trace["cross.1.value"]
    output = planted.anatomy.sites[-1].head_weights().output
    targets, sources = len(batch.target.words[0]), len(batch.source.words[0])
    sure = {tuple(map(int, link.split("-"))) for link in example.extra["alignment"].split()}
    for measure in ("weights", "norms"):
        for reading, shift in (("output", 0), ("input", 1)):
            found = set()
            for t in range(targets):
                scores = []
                for j in range(sources):
                    terms = [weights[h, t + shift, j] * (value[h, j] @ output[h]) for h in range(len(HEADS))]
                    mean = sum(weights[h, t + shift, j].item() for h in range(len(HEADS)))
                    scores.append(mean if measure == "weights" else sum(terms).norm().item())
                found.add((scores.index(max(scores)), t))
            cell = data.sel(stack="cross", layer=1, measure=measure, reading=reading)
            assert cell.layer_aer.item() == pytest.approx(1 - 2 * len(found & sure) / (len(found) + len(sure)))
            assert cell.layer_precision.item() == pytest.approx(len(found & sure) / len(found), rel=1e-14)
            assert cell.layer_recall.item() == pytest.approx(len(found & sure) / len(sure), rel=1e-14)


def test_rates_are_over_all_links_of_the_corpus():
    planted, texts = translator(plant=False), copies()
    one, two = (run_lens(Alignment(), planted, [planted.encode([text])]).compute().data.aer for text in texts[:2])
    both = run_lens(Alignment(), planted, [planted.encode(texts[:2])]).compute().data.aer
    assert abs(both - (one * 6 + two * 8) / 14).max() < 1e-12  # |A| + |S| of three and of four words


def test_laws():
    check_lens(Alignment, translator(plant=False), reversals()[:5], tolerance=1e-9)


def test_gold_from_a_file_and_from_a_mapping(tmp_path):
    texts = [replace(text, extra={}, id=str(number + 1)) for number, text in enumerate(copies())]
    naacl, pharaoh = tmp_path / "gold.wa", tmp_path / "gold.align"
    sizes = [len(text.target.split()) for text in texts]
    naacl.write_text("".join(f"{s + 1} {k + 1} {k + 1} S\n" for s, n in enumerate(sizes) for k in range(n)))
    pharaoh.write_text("".join(" ".join(f"{k}-{k}" for k in range(n)) + "\n" for n in sizes))
    mapping = {text.id: ([(k, k) for k in range(n)], []) for text, n in zip(texts, sizes, strict=True)}
    expected, _ = rates(translator(), copies())
    for gold in (naacl, str(pharaoh), mapping):
        assert rates(translator(), texts, gold=gold)[0] == expected


def aligned(**change):
    return [replace(example, extra={"alignment": "0-0"}, **change) for example in examples((4,))]


@pytest.mark.parametrize(
    ("family", "texts", "gold", "message"),
    [
        ("bert", aligned(), None, "'tiny bert' is not a translation model"),
        ("marian", aligned(target=None), None, "'1' has no reference translation to align"),
        ("marian", examples((4,)), None, "'1' has no gold alignment"),
        ("marian", examples((4,)), {"7": "0-0"}, "no sentence '1'; they have '7'"),
        ("marian", examples((4,)), {"1": "9-0"}, r"links source word 9 with target word 0 .* have 4 and 3 words"),
        ("marian", [replace(aligned()[0], extra={"alignment": "a-b"})], None, "'a-b' is not a link"),
    ],
)
def test_bad_input_is_one_line(family, texts, gold, message):
    with pytest.raises(UserError, match=message) as caught:
        look(subject(family), texts, [Alignment(gold=gold)], progress=False)
    assert "\n" not in str(caught.value)


def test_no_such_file():
    with pytest.raises(UserError, match=r"there is no file 'nowhere\.wa'"):
        Alignment(gold="nowhere.wa")
