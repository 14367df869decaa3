"""The norms lens: what it costs beyond the forward pass, and what it saves over the tensor nobody should build."""

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.harness import Figure, peak_memory, side_by_side
from benchmarks.shapes import BERT_BASE, subject, texts
from lorgnette.contributions.norms import all_heads_norms, gram, output_products, transformed_norms
from lorgnette.lens.norms.lens import Norms
from lorgnette.looking.driver import Driver
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch

CONTRIBUTION = {"all_heads": False, "residual": False, "sample": 0, "contribution": True}
LAYERS = 3  # all layers are alike; three keep the run short


def passes(watched: Subject, batch: Batch, **options: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """The plain pass, and the pass with the lens looking on."""
    lens = Norms(**options)
    lens.bind(watched)
    driver = Driver(watched, [lens])

    def plain() -> None:
        with torch.no_grad():
            watched.run(batch)

    def looking() -> None:
        driver.take(batch)

    return plain, looking


def norms_over_forward() -> Iterator[Figure]:
    """Per head and all heads (with rank correlations), then everything, over the plain eager forward."""
    watched = subject(BERT_BASE, layers=LAYERS)
    watched.model.set_attn_implementation("eager")
    heads = {"residual": False}
    cases = (("n128", 128, 8, heads, 1.3), ("n512", 512, 4, heads, 1.4), ("res_ln_n128", 128, 8, {}, 1.7),
             ("res_ln_n512", 512, 4, {}, 1.7), ("contribution_n128", 128, 8, CONTRIBUTION, 1.4),
             ("contribution_n512", 512, 4, CONTRIBUTION, 1.4))  # fmt: skip
    for name, tokens, count, options, bound in cases:
        batch = watched.encode(list(texts(count, tokens)))
        ratio = side_by_side(*passes(watched, batch, **options), seconds=60)
        yield Figure(f"norms_{name}", ratio.value, bound, details=ratio.details(batch=count))


def norms_long() -> Iterator[Figure]:
    """Category sums of norms at n = 4096, without the matrix, over the plain sdpa forward."""
    watched = subject(BERT_BASE, layers=1, longest=4096)
    batch = watched.encode(list(texts(1, 4096)))
    options = {"all_heads": False, "residual": False, "sample": 0}
    ratio = side_by_side(*passes(watched, batch, **options), seconds=60)
    yield Figure("norms_long_n4096", ratio.value, 2.5, details=ratio.details(batch=1))


def ours(weights: torch.Tensor, value: torch.Tensor, output: torch.Tensor, products: torch.Tensor) -> Any:
    """Per head and all heads from Gram matrices; the products of the output projection are known beforehand."""
    g = gram(value, products)
    return weights * transformed_norms(g)[:, :, None], all_heads_norms(weights, g)


def literal(weights: torch.Tensor, value: torch.Tensor, output: torch.Tensor, products: torch.Tensor) -> Any:
    """As published: every weighted vector of every head and pair."""
    transformed = torch.einsum("bhkd,hdm->bhkm", value, output)
    weighted = torch.einsum("bhqk,bhkm->bhqkm", weights, transformed)
    return weighted.norm(dim=-1), weighted.sum(1).norm(dim=-1)


def inputs(batch: int = 2, tokens: int = 128) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    weights = torch.rand(batch, 12, tokens, tokens).softmax(-1)
    value, output = torch.randn(batch, 12, tokens, 64), torch.randn(12, 64, 768) / 30
    return weights, value, output, output_products(output)


def norms_against_tensor() -> Iterator[Figure]:
    """One layer of BERT-base, n = 128, against the batch×head×query×key×model tensor: time and extra memory."""
    given = inputs()
    with torch.no_grad():
        ratio = side_by_side(lambda: ours(*given), lambda: literal(*given), seconds=60)
    yield Figure("norms_times_faster_n128", ratio.value, 50.0, higher=True, details=ratio.details(batch=2))
    setup = "import torch; from benchmarks.norms import inputs, ours, literal; torch.set_num_threads(1)\n"
    # A first small run loads what is loaded once, so that only the work itself is counted.
    setup += "small = inputs(1, 8); ours(*small); literal(*small); given = inputs()\n"
    codes = {"nothing": setup, "ours": setup + "ours(*given)", "literal": setup + "literal(*given)"}
    peak = {name: statistics.median(peak_memory(code) for _ in range(3)) for name, code in codes.items()}
    extra = {name: max(peak[name] - peak["nothing"], 2**20) for name in ("ours", "literal")}
    details = {f"{name}_mib": round(value / 2**20, 1) for name, value in extra.items()}
    yield Figure("norms_times_less_memory_n128", extra["literal"] / extra["ours"], 50.0, higher=True, details=details)


BENCHES = {
    "norms_over_forward": norms_over_forward,
    "norms_long": norms_long,
    "norms_against_tensor": norms_against_tensor,
}
