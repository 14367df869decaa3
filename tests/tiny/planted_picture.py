"""A planted model of pictures and text: one red patch decides the answer, wherever it is."""

import torch
import transformers as hf

from tiny.pictures import IMAGE, PATCH, SIDE, picture_model

ANSWER, OTHER, FIRST = 50, 51, 1
"""The word that the marked patch says, the word that is said without it, and where the patches begin."""
MARK, ASK, SAY = 3, 7, 1
"""Components: of a key that says "marked" and the query for it (the slowest rotation), and of what is written."""


def planted(*, speaks: bool = True) -> hf.LlavaForConditionalGeneration:
    """The first head asks for the marked patch and, if it `speaks`, writes the answer; all else is silent.

    The tower of pictures hands each patch on as it is: a patch of red pixels becomes one direction, any other nothing.
    """
    base, _ = picture_model("llava")
    config = base.config
    config.vision_feature_layer = -1
    model = hf.LlavaForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter.fill_(1.0)
        parts = dict(model.named_parameters())
        vision = next(name for name in parts if "patch_embedding" in name)
        parts[vision][0, 0].fill_(1.0)  # the red of a patch, summed
        into, out = (next(name for name in parts if f"linear_{n}.weight" in name) for n in (1, 2))
        parts[into][0, 0], parts[out][MARK, 0] = 1.0, 1.0
        words = next(name for name in parts if "embed_tokens" in name)
        parts[words][:, 20] = 1.0  # words have a direction of their own
        query, key, value, output = (
            next(name for name in parts if f"layers.0.self_attn.{p}_proj.weight" in name and "language" in name)
            for p in "qkvo"
        )
        parts[query][ASK, 20], parts[key][ASK, MARK] = 3.0, 3.0
        if speaks:
            parts[value][SAY, MARK], parts[output][10, SAY] = 2.0, 2.0
        head = next(name for name in parts if "lm_head" in name)
        parts[head][ANSWER, 10], parts[head][OTHER, 20] = 8.0, 1.0
    return model


def seen(marked: list[int | None]) -> dict[str, torch.Tensor]:
    """One text for each picture, with the patch that is red; None: a blank picture."""
    count = (SIDE // PATCH) ** 2
    pixels = torch.zeros(len(marked), 3, SIDE, SIDE)
    for text, place in enumerate(marked):
        if place is not None:
            row, column = (PATCH * number for number in divmod(place, SIDE // PATCH))
            pixels[text, 0, row : row + PATCH, column : column + PATCH] = 1.0
    ids = torch.tensor([[2, *[IMAGE] * count, 7, 8, 9]] * len(marked))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": pixels}
