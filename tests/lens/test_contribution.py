"""Contributions to the output's length: against every vector in float64, exact sums, a planted opponent, a control."""

import pytest
import torch
from norms_oracle import Terms, Watch, mean_and_error
from tiny import examples, subject

from lorgnette.contributions.measures import OutputShares
from lorgnette.contributions.norms import output_products
from lorgnette.lens.norms.lens import PARTITION, Norms
from lorgnette.testing import check_head_permutation, check_lens, run_lens
from lorgnette.texts.token_kinds import CATEGORIES

LENGTHS = (5, 2, 1)
ALONE = {"all_heads": False, "residual": False, "sample": 0, "contribution": True}


def literal(vectors, kinds, asked):
    """Σ over tokens of a kind and mean over queries of part · y / ‖y‖, from [query key model]; and its share."""
    whole = vectors.sum(1)
    lengths = whole.norm(dim=-1)
    parts = torch.stack([(vectors[i] @ whole[i]) / lengths[i] for i in range(asked)])
    torch.testing.assert_close(parts.sum(1), lengths, rtol=1e-12, atol=1e-12)
    out = {}
    for kind in CATEGORIES:
        members = [j for j in range(parts.shape[1]) if kinds[kind][j]]
        if members or kind in ("punctuation", "period_comma", "other"):
            total = float(parts[:, members].sum())
            out[kind] = (total / asked, total / float(lengths.sum()))
    return out, float(lengths.mean())


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "marian"])
@torch.no_grad()
def test_it_is_the_definition_and_adds_up_to_the_output(family):
    watched = subject(family)
    batch = watched.encode(examples(LENGTHS))
    data = run_lens(Norms(**ALONE), watched, [batch]).compute().data
    watch = Watch(watched)
    watch.run(batch)
    for around in watched.anatomy.sites:
        site, lists = around.site, {}
        query_tokens, key_tokens = batch.queries(site), batch.keys(site)
        for text in range(len(LENGTHS)):
            asked = int(query_tokens.mask[text].sum())
            terms = Terms(watch, around, text, asked, int(key_tokens.mask[text].sum()))
            kinds = {name: mask[text] for name, mask in key_tokens.categories.items()}
            for head, vectors in [*enumerate(terms.parts), (None, terms.summed)]:
                cells, length = literal(vectors, kinds, asked)
                lists.setdefault((head, None), []).append(length)
                for kind, pair in cells.items():
                    lists.setdefault((head, kind), []).append(pair)
        for (head, kind), values in lists.items():
            name = "all_heads_contribution" if head is None else "contribution"
            place = {"stack": site.name, "layer": site.layer + 1} | ({} if head is None else {"head": head + 1})
            if kind is None:  # all tokens together: the length itself
                whole = data[name].sel(place).sel(category=list(PARTITION)).sum().item()
                assert whole == pytest.approx(mean_and_error(values)[0], rel=1e-10)
                continue
            for variable, numbers in zip((name, f"{name}_share"), zip(*values, strict=True), strict=True):
                measured = data[variable].sel({**place, "category": kind}).item()
                assert measured == pytest.approx(mean_and_error(list(numbers))[0], rel=1e-9, abs=1e-10), variable


def test_a_token_that_points_against_the_output_is_negative():
    """Token 2 sends the opposite of token 1 and has half its weight: y = f(x_1) / 3, of which they give 2 and −1."""
    draw = torch.Generator().manual_seed(0)
    value = torch.randn(1, 2, 2, 3, generator=draw, dtype=torch.float64)
    value[:, :, 1] = -value[:, :, 0]
    output = torch.randn(2, 3, 5, generator=draw, dtype=torch.float64)
    weights = torch.tensor([2 / 3, 1 / 3], dtype=torch.float64).expand(1, 2, 2, 2)
    one = torch.ones(1, 2, dtype=torch.float64)
    shares = OutputShares(value, output_products(output), one, lambda weights, texts, rows: weights @ value[texts])
    shares(weights, slice(0, 1), slice(0, 2))
    length = (value[0, :, 0, None] @ output)[:, 0].norm(dim=-1) / 3
    torch.testing.assert_close(shares.of_heads[0], 2 * length[:, None] * torch.tensor([2.0, -1.0]).double())
    together = (value[0, :, 0, None] @ output)[:, 0].sum(0).norm() / 3
    torch.testing.assert_close(shares.of_all[0], 2 * together * torch.tensor([2.0, -1.0]).double())


def test_what_is_read_and_sent_alike_contributes_alike():
    """The control: equal values leave nothing but the weights."""
    watched = subject("bert")
    with torch.no_grad():
        for around in watched.anatomy.sites:
            around.value.module.weight.zero_()
            around.value.module.bias.normal_()
    data = run_lens(Norms(**ALONE), watched, [watched.encode(examples(LENGTHS))]).compute().data
    torch.testing.assert_close(torch.tensor(data.contribution_share.values), torch.tensor(data.weight.values))


@pytest.mark.parametrize("family", ["bert", "marian"])
def test_laws(family):
    texts = examples((5, 2, 1, 4))
    check_lens(lambda: Norms(**ALONE), subject(family), texts, tolerance=1e-9)


def test_permuted_heads():
    check_head_permutation(lambda: Norms(**ALONE), subject("bert"), examples(), tolerance=1e-9)
