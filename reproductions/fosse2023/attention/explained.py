"""Three maps over the words of a text: what people would say of them, and what the model does without those words."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette.contributions.rollout import half_residual, rolled_out
from lorgnette.lens.rationales.faithfulness import SHARES, aopc, deleted, predicted_drop, top_tokens
from lorgnette.subject import Subject
from reproductions.fosse2023.attention.geometry import Pass, passed
from reproductions.fosse2023.attention.texts import Text, Texts, batches
from reproductions.frame.plausible import measured

MAPS = ("attention", "rollout", "cosine")
_VOCABULARY = 4096  # texts of one word at a time
_SEED = 0  # of the order in which tokens go by chance


def marked(texts: Sequence[Text]) -> list[Text]:
    """Those in which people marked at least one word."""
    return [text for text in texts if text.example.rationale is not None and any(text.example.rationale)]


@torch.no_grad()
def explained(subject: Subject, texts: Sequence[Text]) -> dict[str, Any]:
    """Plausibility of each map (pooled, per instance), faithfulness of attention's and of a random order."""
    chosen = marked(texts)
    single = one_word_outputs(subject, chosen)
    words: dict[str, dict[int, Tensor]] = {name: {} for name in MAPS}
    drops: dict[str, list[Tensor]] = {"attention": [], "random": []}
    dice = torch.Generator().manual_seed(_SEED)
    for batch in batches(chosen, subject.device):
        run = passed(subject, batch)
        scores = token_scores(run, batch, single)
        for name in MAPS:
            words[name] |= dict(_words(scores[name], batch, texts, name == "cosine"))
        chance = torch.rand(batch.ids.shape, generator=dice).to(subject.device)
        for name, order in (("attention", scores["attention"]), ("random", chance)):
            drops[name].append(_drops(subject, run, batch, order))
    examples = [text.example for text in chosen]
    found = {name: measured([words[name][text.number] for text in chosen], examples, 0) for name in MAPS}
    return {"plausibility": found, "faithfulness": {name: _faithful(drop) for name, drop in drops.items()}}


@torch.no_grad()
def one_word_outputs(subject: Subject, texts: Sequence[Text]) -> Float[Tensor, "vocabulary width"]:
    """u_t: the last state of <cls> for the text "<cls> t", for every token t of the texts; zeros for the others."""
    config = subject.model.config
    kinds = torch.cat([text.ids[1:] for text in texts]).unique()
    table = torch.zeros(config.vocab_size, config.width, device=subject.device, dtype=subject.dtype)
    for some in kinds.split(_VOCABULARY):
        ids = torch.stack([torch.full_like(some, config.cls_token_id), some], dim=1).to(subject.device)
        out = subject.model(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
        table[some.to(subject.device)] = out.hidden_states[-1][:, 0]
    return table


def token_scores(
    run: Pass, batch: Texts, single: Float[Tensor, "vocabulary width"]
) -> dict[str, Float[Tensor, "batch token"]]:
    """Of each token: the last layer's weight in the row of <cls>; its share by rollout; cos(u_t, CLS of the text)."""
    mixing = torch.stack([half_residual(call.weights) for call in run.calls])
    return {
        "attention": run.calls[-1].weights[:, 0, 0],
        "rollout": rolled_out(mixing)[-1][:, 0],
        "cosine": torch.cosine_similarity(single[batch.ids], run.cls[:, None], dim=-1),
    }


def _words(
    scores: Float[Tensor, "batch token"], batch: Texts, texts: Sequence[Text], average: bool
) -> Iterator[tuple[int, Float[Tensor, " word"]]]:
    """From tokens to words: shares add up, cosines are averaged; a word without a token gets the least of its text."""
    for number, row, word in zip(batch.numbers.tolist(), scores.double().cpu(), batch.word, strict=True):
        given = texts[number].example.words
        assert given is not None
        there = word >= 0
        yield number, on_words(row[there], word[there], len(given), average)


def on_words(
    row: Float[Tensor, " token"], word: Int[Tensor, " token"], count: int, average: bool
) -> Float[Tensor, " word"]:
    total = torch.zeros(count, dtype=torch.float64).index_add_(0, word, row)
    if not average:
        return total
    tokens = torch.bincount(word, minlength=count)
    return torch.where(tokens > 0, total / tokens.clamp(min=1), row.min())


def _drops(subject: Subject, run: Pass, batch: Texts, scores: Float[Tensor, "batch token"]) -> Tensor:
    """[kind share batch]: what the predicted class loses without the first tokens, and with them alone."""
    words = batch.mask.clone()
    words[:, 0] = False  # <cls> stays: the model reads the class off it
    whole = run.logits.double().softmax(-1)
    out: list[list[Tensor]] = [[], []]
    for share in SHARES:
        first = top_tokens(scores, words, share)
        for kind, gone in enumerate((first, words & ~first)):
            ids, mask = deleted(batch.ids, batch.mask, gone, subject.model.config.pad_token_id)
            logits = subject.model(input_ids=ids, attention_mask=mask).logits
            out[kind].append(predicted_drop(whole, logits.double().softmax(-1)))
    return torch.stack([torch.stack(kind) for kind in out]).cpu()


def _faithful(drops: list[Tensor]) -> dict[str, Any]:
    together = torch.cat(drops, dim=-1)
    out: dict[str, Any] = {"texts": together.shape[-1], "shares": list(SHARES)}
    for name, kind in zip(("comprehensiveness", "sufficiency"), together, strict=True):
        out[name] = aopc(kind).mean().item()
        out[f"{name}_by_share"] = kind.mean(-1).tolist()
    return out
