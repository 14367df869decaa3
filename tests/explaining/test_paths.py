"""The strongest paths of one text: edges that lead to the output, with the attributions of all edges."""

import pytest
import torch
from tiny import gpt2
from tiny import subject as tiny_subject

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.explaining.rules import Heads

TEXT, OTHER = "w10 w22 w35 w41 w60", "w11 w22 w36 w41 w61"


def effects_by_gradient(subject, text, other):
    """⟨z − z′, ∂logit/∂z⟩ of every head, by plain autograd; z′ is its output for the other text, or the mean of z."""
    outputs = []
    for each in (text, other) if other else (text,):
        tap = Heads()
        with torch.enable_grad(), subject.tapped(tap):
            logits = subject.run(subject.encode([each]), use_cache=False).logits
        outputs.append(tap.outputs)
        if each == text:
            slopes = torch.autograd.grad(logits[0, -1].max(), list(tap.outputs.values()))
    found = {}
    for (site, z), slope in zip(outputs[0].items(), slopes, strict=True):
        away = outputs[1][site] if other else z.mean(2, keepdim=True)
        for head, value in enumerate(((z - away).detach() * slope)[0].sum((-1, -2)).tolist()):
            found[f"{site.name} {site.layer + 1}-{head + 1}"] = value
    return found


@pytest.mark.parametrize("against", [None, OTHER])
def test_all_edges_of_a_head_sum_to_its_effect_by_gradient(against):
    subject = tiny_subject("gpt2")
    found = lo.paths(subject, TEXT, against=against, count=10_000).to_dataframe()
    summed = found.groupby("writer")["attribution"].sum()
    for name, effect in effects_by_gradient(subject, TEXT, against).items():
        assert summed[name] == pytest.approx(effect, rel=1e-6, abs=1e-10)


def test_every_edge_leads_to_the_output_and_the_strongest_come_first():
    subject = gpt2()
    every = lo.paths(subject, "the cat sat on the mat", count=10_000).edges
    some = lo.paths(subject, "the cat sat on the mat", count=7).edges
    assert some == every[:7]
    reached = {None}
    for number, edge in enumerate(some):
        assert edge.reader in reached
        open_ = [abs(other.attribution) for other in every[number:] if other.reader in reached]
        assert abs(edge.attribution) == max(open_)
        reached.add(edge.writer)
    alone = lo.paths(subject, "the cat sat on the mat", count=7, among="heads").edges
    assert {edge.writer.kind for edge in alone} == {"heads"}


def test_it_is_drawn_and_says_what_is_explained():
    subject = gpt2()
    found = lo.paths(subject, "the cat sat on the mat", target=lo.Next(" the", instead_of=" cat"), count=9)
    assert " − " in found.explained
    assert found.plot().chart.to_dict()
    assert len(found.to_dataframe()) == 9


def test_a_text_of_another_length_is_refused_in_one_line():
    with pytest.raises(UserError, match="must have as many tokens as the text, 5"):
        lo.paths(tiny_subject("gpt2"), TEXT, against="w10 w22")
