"""Relevance of all tokens and heads: what it costs beyond the forward pass, and how near that is to the limit."""

from collections.abc import Callable, Iterator

import torch
from transformers import BertConfig, BertForSequenceClassification

from benchmarks.decomposed import decomposed
from benchmarks.harness import Figure, side_by_side
from benchmarks.shapes import BERT_BASE, subject, texts
from lorgnette.explaining import explain
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch

BOUNDS = {"ah": 2.6, "decompx": 2.6, "attnlrp": 2.6, "gradient_x_input": 3.5, "voita2019": 3.5, "voita2021": 3.5}
TOKENS, COUNT = 128, 4


def classifier(layers: int = BERT_BASE["num_hidden_layers"], shape: dict[str, int] = BERT_BASE) -> Subject:
    """BERT-base, or another shape, with a classifier on top, random weights."""
    plain = subject(shape, longest=TOKENS, layers=1)
    torch.manual_seed(0)
    settings = {"vocab_size": len(plain.tokenizer), "max_position_embeddings": TOKENS, "attn_implementation": "sdpa"}
    model = BertForSequenceClassification(BertConfig(**{**shape, "num_hidden_layers": layers}, **settings)).eval()
    return Subject(model, plain.tokenizer, name="random weights")


def forward(watched: Subject, batch: Batch) -> Callable[[], None]:
    def plain() -> None:
        with torch.no_grad():
            watched.run(batch)

    return plain


def forward_and_backward(watched: Subject, batch: Batch) -> Callable[[], None]:
    """The limit: one pass forward, and the gradient of one logit back to the word vectors, nothing kept on the way."""
    rest = {name: tensor for name, tensor in batch.inputs.items() if name != "input_ids"}

    def both() -> None:
        vectors = watched.model.get_input_embeddings()(batch.inputs["input_ids"]).detach().requires_grad_()
        logits = watched.model(inputs_embeds=vectors, **rest).logits
        torch.autograd.grad(logits.amax(-1).sum(), vectors)

    return both


def relevance() -> Iterator[Figure]:
    """Every method that reaches heads over the plain forward pass, all layers' heads included."""
    watched = classifier()
    batch = watched.encode(list(texts(COUNT, TOKENS)))
    plain = forward(watched, batch)
    limit = side_by_side(plain, forward_and_backward(watched, batch), seconds=40)
    for method, bound in BOUNDS.items():
        ratio = side_by_side(plain, lambda method=method: explain(watched, batch, method), seconds=40)
        rates = {
            "tokens_per_s": round(COUNT * TOKENS / ratio.candidate, 1),
            "heads_per_s": round(COUNT * len(watched.sites) * watched.heads / ratio.candidate, 1),
        }
        details = ratio.details(batch=COUNT, forward_and_backward=round(limit.value, 4), **rates)
        yield Figure(f"relevance_{method}_n{TOKENS}", ratio.value, bound, details=details)


def decompx_against_vectors() -> Iterator[Figure]:
    """DecompX of one class in one way back against the token×token×model vectors of the paper: four layers, n = 128."""
    watched = classifier(layers=4)
    batch = watched.encode(list(texts(1, TOKENS)))
    ids = batch.source.ids[0]
    fast, slow = explain(watched, batch, "decompx", 0).tokens[0], decomposed(watched.model, ids)[:-1, 0]
    ratio = side_by_side(
        lambda: explain(watched, batch, "decompx", 0), lambda: decomposed(watched.model, ids), seconds=60, least=3
    )
    error = float((fast - slow).abs().max() / slow.abs().max())
    details = ratio.details(batch=1, relative_error=float(f"{error:.1e}"))
    yield Figure(f"decompx_times_faster_n{TOKENS}", ratio.value, 30.0, higher=True, details=details)


BENCHES = {"relevance": relevance, "decompx_against_vectors": decompx_against_vectors}
