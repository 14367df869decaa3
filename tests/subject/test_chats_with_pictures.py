"""Chats and prompts with a picture: who speaks where, beside the patches; ids are those of the processor itself."""

import numpy as np
import pytest
import torch
from tiny.pictures import picture_model
from tiny.processors import processor_of

import lorgnette as lo

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'lorgnette[pictures]'")

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 24, 3), dtype=np.uint8))
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %} <image> {% else %} {{ part['text'] }} {% endif %}{% endfor %} </s> {% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
SAID = [
    {"role": "system", "content": "w1 w2"},
    {"role": "user", "content": "what is it"},
    {"role": "assistant", "content": "a cat"},
    {"role": "user", "content": {"document": "w5 w6 w7", "question": "red"}},
]
KINDS = ("llava", "idefics3", "smolvlm", "qwen2_5_vl", "internvl")


def seeing(kind, template=TEMPLATE):
    processor = processor_of(kind)
    mark = processor.image_token
    processor.chat_template = template.replace("<image>", mark)
    return lo.Subject(picture_model(kind)[0], processor)


@pytest.mark.parametrize("kind", KINDS)
def test_everybody_speaks_where_they_speak(kind):
    subject = seeing(kind)
    trace = subject.trace(lo.chat(SAID), image=PICTURE)
    source, pieces = trace.batch.source, trace.pieces()
    said = {name: " ".join(p for p, one in zip(pieces, source.part_names(), strict=True) if one == name)
            for name in set(source.part_names())}  # fmt: skip
    assert said["system"] == "w1 w2"
    assert said["user"] == "what is it"
    assert said["assistant"] == "a cat"
    assert (said["document"], said["question"]) == ("w5 w6 w7", "red")
    names = source.part_names()
    image = source.categories["image"][0].tolist()
    assert [name == "image" for name in names] == image
    first, last = image.index(True), len(image) - image[::-1].index(True)
    assert names[first - 1] == "template"
    assert names[last] == ("user" if kind in ("llava", "qwen2_5_vl") else "template")  # the others write a mark there
    assert source.patches is not None
    own = subject.processor(text=[trace.example.text], images=[PICTURE], return_tensors="pt")
    assert torch.equal(own["input_ids"], trace.batch.inputs["input_ids"])
    shares = trace.by_part().mean(("layer", "head"))
    np.testing.assert_allclose(shares.sum("key_part"), 1.0, rtol=1e-5)
    assert {"system", "user", "image", "template"} <= {str(name) for name in shares["key_part"].values}


def test_a_chat_is_continued_with_its_picture():
    import transformers as hf

    base = seeing("llava")
    model = hf.LlavaForConditionalGeneration(base.model.config).eval()
    trace = lo.Subject(model, base.processor).trace(lo.chat(SAID[:2]), image=PICTURE, generate=2)
    names = trace.batch.source.part_names()
    assert names[-2:] == ["generated"] * 2
    assert {"system", "user", "template", "image"} < set(names)


def test_a_prompt_keeps_its_parts():
    example = lo.prompt(example="a cat", question="what is it")
    trace = seeing("llava", template="").trace(example, image=PICTURE)
    names = trace.batch.source.part_names()
    assert [name for name in names if name in ("example", "question")] == ["example"] * 2 + ["question"] * 3


def test_what_the_template_begins_with_is_not_put_there_twice():
    """As transformers does where it writes and cuts the template itself."""
    subject = seeing("llava", "<s> " + TEMPLATE)
    for example in (lo.chat(SAID[1:2]), "what is it"):
        ids = subject.trace(example, image=PICTURE).batch.inputs["input_ids"][0].tolist()
        assert ids.count(2) == 1
    said = [{"role": "user", "content": [{"type": "image", "image": PICTURE}, {"type": "text", "text": "what is it"}]}]
    own = subject.processor.apply_chat_template(
        said, tokenize=True, return_dict=True, return_tensors="pt", add_generation_prompt=True
    )
    assert own["input_ids"][0].tolist() == ids


def test_a_picture_needs_somebody_to_show_it():
    with pytest.raises(lo.UserError, match="needs a message of the user"):
        seeing("llava").trace(lo.chat(SAID[:1]), image=PICTURE)
