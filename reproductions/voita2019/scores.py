"""What is kept of a model: BLEU, with draws for paired differences, and how often each piece was seen in training."""

from collections.abc import Sequence
from typing import Any

import torch

from lorgnette.statistics.bleu import bleu
from lorgnette.texts import Example, corpus
from lorgnette.training.translation.generation import translate
from reproductions.voita2019.workshop import PAIR, Workshop, device, named

_BATCH = 512


def scored(
    model: Any,
    tokenizer: Any,
    pairs: Sequence[Example],
    shop: Workshop,
    *,
    draws: bool = True,
    target_tokenizer: Any = None,
    beams: int = 1,
) -> dict[str, Any]:
    """BLEU of greedy translations; the draws are the same texts for every model on these pairs."""
    said = translate(
        model,
        tokenizer,
        [example.text for example in pairs],
        batch_size=_BATCH,
        target_tokenizer=target_tokenizer,
        bf16=shop.sizes["bf16"] and model.device.type == "cuda",
        beams=beams,
    )
    found = bleu(said, [example.target or "" for example in pairs])
    out = {"bleu": round(found.score, 4), "brevity": round(found.brevity, 4), "signature": found.signature}
    out |= {"texts": len(pairs), "beams": beams, "examples": said[:3]}
    if draws:
        out["draws"] = [round(one, 3) for one in found.draws(shop.sizes["draws"]).tolist()]
    return out


def all_scores(model: Any, tokenizer: Any, shop: Workshop, *, apart: bool = True) -> dict[str, Any]:
    """On validation, on the test sentences, and, apart, on those of MSCOCO where the pairs are of Multi30k."""
    model.to(device())
    limit = shop.sizes["test_limit"]
    name = named(shop.own)
    out = {
        "validation": scored(
            model,
            tokenizer,
            list(corpus(name, split="validation", data=shop.machine.data, limit=limit)),
            shop,
            draws=False,
        ),
        "test": scored(model, tokenizer, shop.test(shop.own), shop),
    }
    if apart and shop.own == PAIR:
        coco = list(corpus(name, split="test_2017_mscoco", data=shop.machine.data, limit=limit))
        out["mscoco"] = scored(model, tokenizer, coco, shop, draws=False)
    return out


def counted(ready: Any) -> dict[int, int]:
    """How often each piece occurs in the sources of the training pairs."""
    flat = torch.cat([item["input_ids"].long() for item in ready.train.items])
    pieces, counts = flat.unique(return_counts=True)
    return dict(zip(pieces.tolist(), counts.tolist(), strict=True))
