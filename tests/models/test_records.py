"""Records of families: one for each model type, and the only place that names one."""

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny import FAMILIES as TINY
from tiny import tiny_model
from torch import nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

import lorgnette
from lorgnette.models.families import FAMILIES, anatomy_of, longest_text, model_types, prunable_types
from lorgnette.models.norms import NormForm, norm_form, norm_rate

ROOT = Path(lorgnette.__file__).parent

# A word list and a command of that name, not models.
NAMED_OTHERWISE = {("lens/frequency/lens.py", "bert"), ("looking/aligning.py", "align")}


def test_every_model_type_has_one_record():
    types = [name for family in FAMILIES for name in family.model_types]
    assert len(types) == len(set(types))
    assert set(types) - {"lorgnette-classifier"} <= set(CONFIG_MAPPING_NAMES)
    assert set(prunable_types()) <= set(model_types())


def test_nothing_else_names_a_model_type():
    known = set(CONFIG_MAPPING_NAMES)
    named = set()
    for path in ROOT.rglob("*.py"):
        where = str(path.relative_to(ROOT))
        if where.startswith("models/families/"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in known:
                named.add((where, node.value))
    assert named <= NAMED_OTHERWISE


@pytest.mark.parametrize("family", TINY)
def test_every_projection_gives_what_arrives(family):
    """x W + b of query, key and value, split by heads, has the shape of what attention is given."""
    model = tiny_model(family)
    for site in anatomy_of(model).sites:
        for projection, heads in ((site.query, site.heads), (site.key, site.groups), (site.value, site.groups)):
            weight, bias = projection.weights(heads)
            assert weight.shape[0] == heads
            assert bias is None or bias.shape == (heads, weight.shape[-1])


@pytest.mark.parametrize(
    ("kind", "expected"), [("bert", 64), ("roberta", 62), ("mpnet", 62), ("t5", None), ("unheard-of", 64)]
)
def test_longest_text(kind, expected):
    config = SimpleNamespace(model_type=kind, max_position_embeddings=64, n_positions=64, pad_token_id=1)
    assert longest_text(config, SimpleNamespace(model_max_length=10**30)) == expected
    assert longest_text(config, SimpleNamespace(model_max_length=20)) == 20


@pytest.mark.parametrize("family", ["llama", "gemma", "gemma3", "t5", "gpt2", "bert", "modernbert"])
def test_the_form_of_a_norm_is_what_it_computes(family):
    """(offset + weight)(x − mean)/s + bias, for every module that has norm in its name."""
    model = tiny_model(family, dtype=torch.float64)
    norms = [m for name, m in model.named_modules() if "norm" in type(m).__name__.lower()]
    assert norms
    for norm in norms:
        form = norm_form(norm)
        assert isinstance(form, NormForm)
        x = torch.randn(2, 3, len(norm.weight), dtype=torch.float64)
        centre = x - x.mean(-1, keepdim=True) if form.centred else x
        expected = centre * form.gain(norm, norm_rate(norm, x))
        if getattr(norm, "bias", None) is not None:
            expected = expected + norm.bias
        torch.testing.assert_close(norm(x), expected, rtol=1e-5, atol=1e-5)


class Swapped(nn.Module):
    """Has the fields of a norm and is none."""

    eps = 1e-6

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flip(-1) * self.weight


def test_what_is_no_norm_has_no_form():
    assert norm_form(Swapped()) is None
    assert norm_form(nn.Linear(3, 3)) is None
    assert norm_form(nn.BatchNorm1d(8).eval()) is None
    assert norm_form(nn.GroupNorm(1, 3)) is None
