"""Subjects of pictures and text: processors built here, corpora with pictures, look and trace."""

import json

import numpy as np
import pytest
import torch
import transformers as hf
from tiny.eager import own_weights
from tiny.models import peaked
from tiny.pictures import picture_model
from tiny.processors import PROCESSORS, VIDEO_PROCESSORS, processor_of

import lorgnette as lo
from lorgnette.reporting.views.gather import document_of
from lorgnette.texts.pictures import Picture

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'lorgnette[pictures]'")


TEXTS = ("what is it", "a red cat", "a cat", "it")


def subject(kind: str = "llava"):
    model, _ = picture_model(kind)
    return lo.Subject(model, processor_of(kind))


@pytest.fixture
def corpus(tmp_path):
    """Four texts with a picture of noise each, in a folder of their own."""
    (tmp_path / "pictures").mkdir()
    rows = []
    for number in range(4):
        pixels = np.random.default_rng(number).integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pictures" / f"{number}.png")
        rows.append(
            {
                "text": TEXTS[number],
                "image": f"pictures/{number}.png",
            }
        )
    file = tmp_path / "texts.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return file


def test_a_processor_finds_both_towers_and_its_batch_is_its_own():
    seeing = subject()
    assert list(seeing.layers) == ["vision", "decoder"]
    picture = Image.fromarray(np.zeros((20, 30, 3), dtype=np.uint8))
    batch = seeing.encode(
        [
            lo.Example("1", "a red cat", image=Picture.of(picture, "1")),
            lo.Example("2", "it", image=Picture.of(picture, "2")),
        ]
    )
    own = processor_of("llava")(text=["<image>\na red cat"], images=[picture], return_tensors="pt")
    assert torch.equal(batch.inputs["input_ids"][0], own["input_ids"][0])
    assert torch.equal(batch.inputs["pixel_values"][:1], own["pixel_values"])
    assert batch.inputs["pixel_values"].shape == (2, 3, 16, 16)
    assert batch.source.words == (("a", "red", "cat"), ("it",))
    assert int(batch.source.categories["image"].sum()) == 32
    assert int(batch.source.categories["special"].sum()) == 2
    assert batch.source.patches.row[0, 1:17].tolist() == [row for row in range(4) for _ in range(4)]


def test_the_batch_gives_the_model_s_own_numbers():
    """Padded in a batch, each text has the logits that it has alone with the processor's output."""
    seeing = subject()
    pictures = [Image.fromarray(np.full((20, 30, 3), shade, dtype=np.uint8)) for shade in (10, 200)]
    texts = ["a red cat", "it"]
    batch = seeing.encode([lo.Example(t, t, image=Picture.of(p, t)) for t, p in zip(texts, pictures, strict=True)])
    with torch.no_grad():
        together = seeing.run(batch).last_hidden_state
        for row, (text, picture) in enumerate(zip(texts, pictures, strict=True)):
            alone = seeing.model(
                **processor_of("llava")(text=[f"<image>\n{text}"], images=[picture], return_tensors="pt")
            )
            states = alone.last_hidden_state[0]
            torch.testing.assert_close(together[row, : len(states)], states, atol=2e-4, rtol=2e-4)


SEEING = ("llava", "gemma3", "paligemma", "idefics3", *VIDEO_PROCESSORS)
"""Families whose language model has the picture among its tokens."""


@pytest.mark.parametrize("kind", SEEING)
def test_from_a_corpus_to_the_picture(kind, corpus, tmp_path):
    """Means by part, a trace, and a head on the picture, all against the model's own eager attention."""
    seeing, parts = subject(kind), ("image", "text", "special")
    results = lo.look(seeing, str(corpus), [lo.lens.get("weights", parts=parts), "norms", "sinks"], progress=False)
    mass = results["weights"].data.sel(stack="decoder", category=list(parts))
    shares = []
    for text, name in zip(TEXTS, sorted((corpus.parent / "pictures").iterdir()), strict=True):
        batch = seeing.encode([seeing.example(text, image=name)])
        weights = decoder_weights(seeing, batch)
        each = [weights[..., batch.source.categories[part][0]].sum(-1).mean(-1) for part in parts]
        shares.append(torch.stack(each, -1).double().numpy())
    np.testing.assert_allclose(mass["mass"], np.mean(shares, 0), rtol=2e-5, atol=1e-7)
    np.testing.assert_allclose(mass["mass_se"], np.std(shares, 0, ddof=1) / 2, rtol=2e-3, atol=1e-6)
    np.testing.assert_allclose(mass["mass"].sum("category"), 1.0, rtol=1e-6)
    assert bool((mass["mass_se"].sel(category="image") > 0).all())
    trace = seeing.trace("a red cat", image=corpus.parent / "pictures" / "1.png")
    own = decoder_weights(seeing, trace.batch)[1, 2, -1]
    patches, drawn = trace.batch.source.patches, trace.overlay(2, 3, query=-1)
    for token in (patches.tile[0] == 0).nonzero()[:, 0].tolist():
        at = int(patches.row[0, token]), int(patches.column[0, token])
        np.testing.assert_allclose(drawn.numbers[at], own[token], rtol=1e-4, atol=1e-6)
    assert drawn.picture is not None
    for name in ("one.png", "one.svg"):
        assert drawn.save(tmp_path / name).stat().st_size > 1000
    tables = document_of(trace)["pictures"]
    assert [len(each["pieces"]) for each in tables] == [int((patches.tile[0] == t).sum()) for t in range(len(tables))]


def decoder_weights(seeing, batch):
    """[layer head query key] of one text, from the attention function in the model's own file."""
    own, _ = own_weights(seeing.model, batch.inputs)
    return torch.stack([own[site.module][0] for site in seeing.anatomy.sites if site.site.name == "decoder"])


def test_trace_takes_a_picture(corpus):
    trace = subject().trace("a red cat", image=corpus.parent / "pictures" / "1.png")
    assert trace["weights"].shape == (2, 4, 20, 20)
    assert trace.batch.source.part_names()[:2] == ["special", "image"]


NOISE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)


@pytest.mark.parametrize("kind", PROCESSORS)
def test_the_tower_is_a_trace_of_its_own(kind, tmp_path):
    """Its weights are those of the model's eager attention; any head lies on the picture, as PNG, SVG and page."""
    trace = subject(kind).trace("a red cat", image=Image.fromarray(NOISE))
    tower = trace.tower()
    assert tower.stacks == ("vision",)
    before = int(kind in ("llava", "clip", "blip"))  # [CLS]
    assert tower.pieces()[before:] == tuple(f"[{row},{column}]" for row in range(1, 5) for column in range(1, 5))
    if kind != "blip":  # which has no eager function
        own, _ = own_weights(trace.subject.model, trace.batch.inputs)
        for site in tower.sites:
            wanted = own[trace.subject.anatomy[site].module][0]
            torch.testing.assert_close(tower[f"vision.{site.layer + 1}.weights"], wanted, atol=1e-5, rtol=1e-4)
    drawn = trace.overlay(2, 3, stack="vision", query=0)
    np.testing.assert_allclose(drawn.numbers.ravel(), tower["weights"][1, 2, 0, before:], rtol=1e-6)
    assert drawn.picture.size == (16, 16)
    assert drawn.save(tmp_path / "one.png").stat().st_size > 1000
    document = document_of(tower)
    assert [len(picture["pieces"]) for picture in document["pictures"]] == [16]
    site = tower.sites[1]
    output = trace.subject.anatomy[site].output_weights()[0][2]
    sent = (tower.calls[site].value[0, 2] @ output).norm(dim=-1) * tower["weights"][1, 2, 0]
    made = trace.overlay(2, 3, stack="vision", query=0, measure="norms").numbers
    np.testing.assert_allclose(made.ravel(), sent[before:].detach(), rtol=1e-5, atol=1e-7)


def test_what_a_tower_lacks_is_one_line():
    trace = subject().trace("a red cat", image=Image.fromarray(NOISE))
    with pytest.raises(lo.UserError, match="attention alone, and no hidden states"):
        _ = trace.tower().hidden_states
    with pytest.raises(lo.UserError, match=r"1 pictures or tiles, counted from 0. Got 1"):
        trace.tower(1)
    with pytest.raises(lo.UserError, match="read no picture here"):
        subject().trace("a red cat").tower()


@pytest.mark.parametrize("kind", SEEING)
def test_a_text_with_a_picture_is_continued(kind):
    """As transformers continues it; the rows of all steps are those of one pass over the whole."""
    base, _ = picture_model(kind)
    torch.manual_seed(0)
    model = peaked(getattr(hf, type(base).__name__.replace("Model", "ForConditionalGeneration"))(base.config).eval())
    seeing = lo.Subject(model, processor_of(kind))
    trace = seeing.trace("a red cat", image=Image.fromarray(NOISE), generate=4)
    prompt = seeing.encode([lo.Example("1", "a red cat", image=Picture.of(Image.fromarray(NOISE), "1"))])
    with torch.no_grad():
        ids = model.generate(**prompt.inputs, max_new_tokens=4, do_sample=False)
    assert torch.equal(trace.batch.source.ids, ids)
    count = len(ids[0])
    assert trace.parts["generated"] == list(range(count - 4, count))
    assert "prompt" not in trace.parts
    assert sum(map(len, trace.parts.values())) == count
    assert trace.tower()["weights"].isfinite().all()
    if kind == "paligemma":  # whose prompt reads ahead, so that one pass would be another computation
        return
    again = lo.Subject(model, processor_of(kind))
    with torch.no_grad():
        whole = lo.attention(again, **trace.batch.inputs)
    torch.testing.assert_close(trace["weights"], whole["decoder.weights"][:, 0], atol=1e-4, rtol=1e-3)
    assert trace.overlay(2, 3, query=-1).numbers.shape == trace.overlay(2, 3, query=1).numbers.shape


def test_blip_is_not_continued_and_says_so():
    pair, _ = picture_model("blip")
    paired = lo.Subject(hf.BlipForConditionalGeneration(pair.config).eval(), processor_of("blip"))
    with pytest.raises(lo.UserError, match="runs a part of the model alone"):
        paired.trace("a cat", image=Image.fromarray(NOISE), generate=3)


@pytest.mark.parametrize("kind", ["clip", "blip"])
def test_the_states_of_a_pair_of_towers_are_those_of_its_texts(kind):
    """What these models return has none of its own: each tower has."""
    model, _ = picture_model(kind)
    paired = lo.Subject(model, processor_of(kind))
    example = lo.Example("1", "a red cat", image=Picture.of(Image.new("RGB", (20, 30)), "1"))
    trace = paired.trace(example)
    assert trace["weights"].shape == (2, 4, 4, 4)
    with torch.no_grad():
        own = model(**trace.batch.inputs, output_hidden_states=True).text_model_output.hidden_states
    torch.testing.assert_close(trace.hidden_states, torch.stack(own)[:, 0])
    results = lo.look(paired, [example], ["geometry", "weights"], progress=False)
    assert bool(np.isfinite(results["geometry"].data["state_sim"]).any())


def test_a_caption_s_states_are_not_those_of_its_picture():
    """BLIP returns the states of its tower of pictures under the name of its own."""
    pair, _ = picture_model("blip")
    model = hf.BlipForConditionalGeneration(pair.config).eval()
    trace = lo.Subject(model, processor_of("blip")).trace("a red cat", image=Image.new("RGB", (20, 30)))
    own = []
    hook = model.text_decoder.register_forward_hook(lambda module, arguments, output: own.append(output))
    with torch.no_grad():
        model(**trace.batch.inputs, output_hidden_states=True)
    hook.remove()
    torch.testing.assert_close(trace.hidden_states, torch.stack(own[0].hidden_states)[:, 0])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../secret.png", "lies outside"),
        ("/etc/hostname", "lies outside"),
        ("link.png", "lies outside"),
        ("none.png", "There is no picture 'none.png'"),
        ("broken.png", "The picture 'broken.png' cannot be read"),
    ],
)
def test_pictures_elsewhere_missing_or_broken_are_one_line(tmp_path, name, message):
    folder = tmp_path / "corpus"
    folder.mkdir()
    Image.fromarray(np.zeros((4, 4, 3), dtype=np.uint8)).save(tmp_path / "secret.png")
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n nothing")
    file = folder / "texts.jsonl"
    file.write_text(json.dumps({"text": "a cat", "image": name}), encoding="utf-8")
    with pytest.raises(lo.UserError, match=message) as caught:
        lo.look(subject(), str(file), ["weights"], progress=False)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_refuses_a_picture(corpus):
    model, _ = picture_model("llava")
    blind = lo.Subject(model, processor_of("llava").tokenizer)
    with pytest.raises(lo.UserError, match="a tokenizer reads none"):
        lo.look(blind, str(corpus), ["weights"], progress=False)


def test_load_opens_the_processor_too(tmp_path):
    model, _ = picture_model("llava")
    model.save_pretrained(tmp_path / "mine")
    processor_of("llava").save_pretrained(tmp_path / "mine")
    loaded = lo.load(str(tmp_path / "mine"))
    assert list(loaded.layers) == ["vision", "decoder"]
    assert loaded.processor is not None
