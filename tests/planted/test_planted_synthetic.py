"""Planted previous-token, duplicate-token and induction heads are found, the induction head retrieves; not so noise."""

import pytest
import torch
from copying import copying

from lorgnette.lens.synthetic.haystack import haystack, tried
from lorgnette.lens.synthetic.lens import Synthetic
from lorgnette.looking.look import look

OPTIONS = {"sequences": 8, "length": 12, "lengths": (40,), "depths": (0, 50, 100), "needles": 1}
PLANTED = {"previous": (1, 1), "duplicate": (1, 2), "induction": (2, 1), "retrieval": (2, 1)}


def numbers(subject):
    return look(subject, ["The baker painted the garden."], [Synthetic(**OPTIONS)], progress=False)["synthetic"].data


@pytest.fixture(scope="module")
def found():
    return numbers(copying()).sel(stack="decoder")


@pytest.mark.parametrize("test", PLANTED)
def test_the_planted_heads_are_found(found, test):
    layer, head = PLANTED[test]
    excess, q = found["excess"].sel(test=test), found["excess_q"].sel(test=test)
    assert float(excess.sel(layer=layer, head=head)) > 0.8
    if test != "retrieval":  # all trials are alike, so that there is no error
        assert float(q.sel(layer=layer, head=head)) < 0.05
    others = [float(excess.sel(layer=a, head=b)) for a in (1, 2) for b in (1, 2) if (a, b) != (layer, head)]
    assert max(others) < 0.2
    assert float(found["recall"].min()) == 1.0


def test_random_weights_have_no_such_head():
    control = numbers(copying(control=True)).sel(stack="decoder")
    for test in ("previous", "duplicate", "induction"):
        assert float(control["excess"].sel(test=test).max()) < 0.1
    assert float(control["recall"].max()) < 0.5
    assert int(control["score_count"].sel(test="retrieval").sum()) == 0


def noisy(seed):
    """The copying model with noise on its weights, so that heads miss some tokens of the needle and hit others."""
    subject = copying()
    torch.manual_seed(seed)
    with torch.no_grad():
        for layer in subject.model.transformer.h:
            layer.attn.c_attn.weight.add_(0.5 * torch.randn_like(layer.attn.c_attn.weight))
    return subject


@torch.no_grad()
def said_and_read(model, ids, steps):
    """Greedy decoding with a whole pass for every token: what is said, and where each head's largest weight is."""
    ids, said, peaks = list(ids), [], []
    for _ in range(steps):
        outputs = model(torch.tensor([ids]), output_attentions=True, use_cache=False)
        peaks.append([[int(head[-1].argmax()) for head in layer[0]] for layer in outputs.attentions])
        said.append(int(outputs.logits[0, -1].argmax()))
        ids.append(said[-1])
        if said[-1] == model.generation_config.eos_token_id:  # the model closes the text
            break
    return said, peaks


@pytest.mark.parametrize("make", [copying, lambda: noisy(0), lambda: noisy(1), lambda: copying(control=True)])
def test_retrieval_is_that_of_whole_passes_in_loops(make):
    """Wu et al. 2024: |needle tokens that are said while the head's largest weight is on them| / |needle|."""
    subject = make()
    for depth in (0, 50, 100):
        found, made = tried(subject, 40, depth, 0), haystack(subject, 40, depth, 0)
        needle = range(made.start, made.start + len(made.answer))
        assert [made.ids[place] for place in needle] == list(made.answer)
        model = subject.model
        model.set_attn_implementation("eager")
        said, peaks = said_and_read(model, made.ids, len(made.answer))
        model.set_attn_implementation("sdpa")
        assert found.recall == pytest.approx(len(set(said) & set(made.answer)) / len(set(made.answer)))
        for site, scores in found.copied.items():
            for head in range(2):
                copied, others = set(), 0
                for step, token in enumerate(said):
                    place = peaks[step][site.layer][head]
                    if token not in made.answer or place not in needle:
                        continue
                    if made.ids[place] == token:
                        copied.add(place)
                    else:
                        others += 1
                n = len(made.answer)
                assert scores[head].tolist() == pytest.approx([len(copied) / n, others / n / (n - 1)], abs=1e-6)
