"""What is kept of a model: BLEU with draws for paired differences, and what its encoder heads look at."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.attention import Call, Site, Tap
from lorgnette.corpora import Example, corpus
from lorgnette.models.tapping import tapped
from lorgnette.statistics.bleu import bleu
from lorgnette.training.translation.generation import translate
from reproductions.voita2019.pruning_models import Workshop

PATTERNS = ("self", "previous", "next", "last")
"""Where a head may look (Raganato & Tiedemann 2018): the token itself, its neighbours, the end of the sentence."""
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
    """On validation, on the Flickr test sentences, and, apart, on those of MSCOCO."""
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    limit = shop.sizes["test_limit"]
    name = "multi30k:en-fr"
    out = {
        "validation": scored(
            model, tokenizer, list(corpus(name, split="validation", data=shop.data, limit=limit)), shop, draws=False
        ),
        "test": scored(model, tokenizer, shop.test("en-fr"), shop),
    }
    if apart:
        coco = list(corpus(name, split="test_2017_mscoco", data=shop.data, limit=limit))
        out["mscoco"] = scored(model, tokenizer, coco, shop, draws=False)
    return out


class Patterns(Tap):
    """Per encoder head: how often the largest weight of a word's row is on each pattern, its mean weight there, and the
    mean largest weight over words (confidence); also how often it is on the rarest word of the sentence.

    Rows are those of words (not of </s>); keys are all tokens, but for confidence and rarest </s> does not count. The
    patterns overlap: the last word's next token is the last token.
    """

    def __init__(self) -> None:
        self.sums: dict[Site, Tensor] = {}
        self.rows = 0.0
        self.words: Tensor
        self.mask: Tensor
        self.rarest: Tensor

    def begin(self, ids: Tensor, mask: Bool[Tensor, "text token"], rank: Float[Tensor, " piece"]) -> None:
        """A batch comes: which tokens are real, and how rare each piece is (larger is rarer)."""
        self.mask = mask
        position = torch.arange(ids.shape[1], device=ids.device)
        self.last = mask.sum(-1) - 1
        self.words = mask & (position < self.last[:, None])
        self.rarest = rank[ids].masked_fill(~self.words, -1).argmax(-1)
        self.rows += float(self.words.sum())

    def see(self, call: Call) -> None:
        site = call.site
        if site.stack != "encoder":
            return
        weights = call.weights.float()  # [text head query key]
        count = weights.shape[-1]
        position = torch.arange(count, device=weights.device)
        aims = torch.stack(
            [
                position.expand(len(weights), -1),
                (position - 1).clamp(min=0).expand(len(weights), -1),
                (position + 1).clamp(max=count - 1).expand(len(weights), -1),
                self.last[:, None].expand(-1, count),
            ]
        )  # [pattern text query]
        there = self.words.expand(4, -1, -1).clone()
        there[1, :, 0] = False
        peak = weights.argmax(-1)  # [text head query]
        hits = (peak[None] == aims[:, :, None]) & there[:, :, None]
        mass = torch.stack([weights.gather(-1, aim[:, None, :, None].expand(-1, weights.shape[1], -1, 1))[..., 0]
                            for aim in aims]) * there[:, :, None]  # fmt: skip
        inner = weights.masked_fill(~self.words[:, None, None], 0)
        top, among = inner.max(-1)
        rare = (among == self.rarest[:, None, None]) & self.words[:, None]
        found = torch.cat(
            [
                hits.sum((1, 3)).float(),
                mass.sum((1, 3)),
                (top * self.words[:, None]).sum((0, 2))[None],
                rare.sum((0, 2))[None].float(),
            ]
        )
        self.sums[site] = self.sums.get(site, 0) + found.double().cpu()

    def numbers(self) -> dict[str, Any]:
        """layer → head → numbers, each a mean over words."""
        names = [*(f"peak_{name}" for name in PATTERNS), *(f"mass_{name}" for name in PATTERNS), "confidence", "rarest"]
        sites = sorted(self.sums, key=lambda site: site.layer)
        tables = [(self.sums[site] / max(self.rows, 1)).tolist() for site in sites]
        return {name: [[round(x, 4) for x in table[row]] for table in tables] for row, name in enumerate(names)}


def patterns(model: Any, tokenizer: Any, texts: Sequence[Example], frequent: Mapping[int, int]) -> dict[str, Any]:
    """What the encoder heads of a model look at in these texts; `frequent` counts the pieces of the training texts."""
    device = model.device
    rank = torch.zeros(model.config.vocab_size, device=device)
    for piece, count in frequent.items():
        rank[piece] = 1 / (1 + count)
    rank[rank == 0] = 1.0
    tap = Patterns()
    start = torch.full((1, 1), model.config.decoder_start_token_id, device=device)
    rows = sorted(tokenizer([one.text for one in texts])["input_ids"], key=len)
    with torch.inference_mode(), tapped(model, tap):
        for begin in range(0, len(rows), 128):
            part = rows[begin : begin + 128]
            width = max(map(len, part))
            ids = torch.tensor([[*one, *[tokenizer.pad_token_id] * (width - len(one))] for one in part], device=device)
            lengths = torch.tensor([len(one) for one in part], device=device)
            mask = torch.arange(width, device=device) < lengths[:, None]
            tap.begin(ids, mask, rank)
            model(input_ids=ids, attention_mask=mask.long(), decoder_input_ids=start.expand(len(part), 1))
    return {"words": tap.rows, "texts": len(texts), **tap.numbers()}


def counted(ready: Any) -> dict[int, int]:
    """How often each piece occurs in the sources of the training pairs."""
    flat = torch.cat([item["input_ids"].long() for item in ready.train.items])
    pieces, counts = flat.unique(return_counts=True)
    return dict(zip(pieces.tolist(), counts.tolist(), strict=True))
