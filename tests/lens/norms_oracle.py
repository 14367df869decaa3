"""The papers' definitions, literally, in float64: every term of every pair as a vector, for one text at a time."""

import itertools
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

from lorgnette.attending import Tap
from lorgnette.models.classifier.layers import PureNorm
from lorgnette.models.norms import epsilon
from lorgnette.texts.token_kinds import CATEGORIES


class Watch(Tap):
    """Keeps the weights, the residual, and what really goes into and comes out of the modules around each site."""

    wants_residual = True

    def __init__(self, subject):
        self.subject, self.seen, self.before, self.after = subject, {}, {}, {}

    def see(self, call):
        residual = None if call._residual is None else call._residual.double()
        self.seen[call.site] = (call.weights.double(), residual)

    def run(self, batch) -> None:
        """One pass; what each watched module was given and gave, in the order of its calls."""
        handles = []
        for site in self.subject.anatomy.sites:
            for module in (site.value.module, site.output, site.norm, next_norm(site), gate_map(site)):
                if module is not None and id(module) not in self.before:
                    self.before[id(module)], self.after[id(module)] = [], []
                    handles.append(module.register_forward_hook(self._keep))
        with torch.no_grad(), self.subject.tapped(self):
            self.subject.run(batch)
        for handle in handles:
            handle.remove()

    def _keep(self, module, arguments, output):
        self.before[id(module)].append(arguments[0].double())
        self.after[id(module)].append(output.double())

    def turn(self, around) -> int:
        """Which call of its modules a site's is: ALBERT uses one layer several times."""
        shared = [s for s in self.subject.anatomy.sites if s.module is around.module]
        return [s.site for s in shared].index(around.site)


SECOND = {
    "bert": "output.LayerNorm", "albert": "full_layer_layer_norm", "distilbert": "output_layer_norm",
    "mpnet": "output.LayerNorm", "deberta": "output.LayerNorm", "deberta-v2": "output.LayerNorm",
    "luke": "output.LayerNorm", "big_bird": "output.LayerNorm",
}  # fmt: skip
NEXT = {
    "OPTDecoderLayer": "final_layer_norm",
    "GPTNeoBlock": "ln_2",
    "BloomBlock": "post_attention_layernorm",
    "GPT2Block": "ln_2", "ModernBertEncoderLayer": "mlp_norm", "LlamaDecoderLayer": "post_attention_layernorm",
    "Qwen2DecoderLayer": "post_attention_layernorm", "Qwen3DecoderLayer": "post_attention_layernorm",
    "MistralDecoderLayer": "post_attention_layernorm", "GemmaDecoderLayer": "post_attention_layernorm",
}  # fmt: skip


def next_norm(around) -> Any:
    """The norm whose input is x + attention in a pre-norm layer."""
    path = NEXT.get(type(around.layer).__name__)
    if type(around.layer).__name__ == "T5Block":
        later = around.layer.layer[1] if around.site.kind == "self" else around.layer.layer[2]
        return later.layer_norm
    return None if path is None else around.layer.get_submodule(path)


GATES = {
    "Qwen3NextAttention": ("q_proj", lambda made: torch.sigmoid(made[..., made.shape[-1] // 2 :])),
    "AfmoeAttention": ("gate_proj", torch.sigmoid),
    "LagunaAttention": ("g_proj", torch.nn.functional.softplus),
    "MuseGlimmerTextAttention": ("gate_proj", torch.sigmoid),
}
"""The linear map that a gate is made of, and how, from its outputs for one head: written from transformers' code."""
NORMS = {"BitNetAttention": "attn_sub_norm"}
"""The norm between the heads and W_O."""


def gate_map(around) -> Any:
    path, _ = GATES.get(type(around.module).__name__, (None, None))
    return None if path is None else around.module.get_submodule(path)


class Terms:
    """One text at one site: α, f^h(x_j), the tensor of terms and their sums."""

    def __init__(self, watch: Watch, around, text: int, asked: int, key_tokens: int) -> None:
        weights, residual = watch.seen[around.site]
        self.around, turn = around, watch.turn(around)
        self.alpha = weights[text, :, :asked, :key_tokens]
        heads = around.head_weights(gated=True)
        given = watch.before[id(around.value.module)][turn][text, :key_tokens]
        self.f = torch.stack([
            (given @ heads.value[h].double() + (0 if heads.value_bias is None else heads.value_bias[h].double()))
            @ heads.output[h].double()
            for h in range(around.heads)
        ])  # fmt: skip
        self.parts = self.alpha[..., None] * self.f[:, None]  # [head query key model], what nobody should build
        module, norm, gate = gate_map(around), NORMS.get(type(around.module).__name__), None
        if module is not None:
            made = watch.after[id(module)][turn][text, :asked].unflatten(-1, (around.heads, -1))
            gate = GATES[type(around.module).__name__][1](made)  # [query head dim], or 1
        if norm is not None:
            norm = around.module.get_submodule(norm)
            y = torch.cat([self.alpha[h] @ (given @ heads.value[h].double()) for h in range(around.heads)], -1)
            gate = norm.weight.double() / (y.square().mean(-1, keepdim=True) + epsilon(norm)).sqrt()
            gate = gate.unflatten(-1, (around.heads, -1))
        if gate is not None:  # Σ_j α (g_i ⊙ v_j) W_O, a vector after the other
            for h, i in itertools.product(range(around.heads), range(asked)):
                value = given @ heads.value[h].double()
                value = value if heads.value_bias is None else value + heads.value_bias[h].double()
                behind = (gate[i, h] * value) @ heads.output[h].double()
                self.parts[h, i] = self.alpha[h, i][:, None] * behind
        self.summed = self.parts.sum(0)  # [query key model]
        self.bias = 0 if heads.output_bias is None else heads.output_bias.double()
        self.x = None if residual is None else residual[text, :asked]
        self.asked, self.read = asked, key_tokens

    @property
    def residual(self) -> torch.Tensor | None:
        """With x_i in token i's own term."""
        if self.around.site.kind != "self" or self.around.order not in ("post", "pre"):
            return None
        out = self.summed.clone()
        for i in range(self.asked):
            out[i, i] += self.x[i]
        return out

    def through(self, norm, terms, whole) -> torch.Tensor:
        """Each term through a norm with the statistics of the whole vector."""
        out = torch.zeros_like(terms)
        for i in range(self.asked):
            if isinstance(norm, PureNorm):
                s, gamma = whole[i].var(unbiased=True).sqrt(), 1.0
            else:
                s, gamma = (whole[i].var(unbiased=False) + epsilon(norm)).sqrt(), norm.weight.double()
            out[i] = gamma * (terms[i] - terms[i].mean(-1, keepdim=True)) / s
        return out

    @property
    def normed(self) -> torch.Tensor | None:
        if self.residual is None or self.around.order != "post":
            return None
        return self.through(self.around.norm, self.residual, self.residual.sum(1) + self.bias)

    def variants(self) -> dict[str, torch.Tensor]:
        named = {"attn_n": self.summed, "attn_res_n": self.residual, "attn_res_ln_n": self.normed}
        return {name: terms for name, terms in named.items() if terms is not None}

    def ratios(self) -> dict[str, list[float]]:
        if self.around.site.kind != "self":
            return {}
        terms = self.variants()
        average = self.alpha.mean(0)
        terms["attn_w"] = average[..., None]
        if "attn_res_n" in terms:
            terms["attn_res_w"] = (average / 2 + torch.eye(self.asked, dtype=torch.float64) / 2)[..., None]
        return {name: [ratio(t[i], i) for i in range(self.asked)] for name, t in terms.items()}

    @torch.no_grad()
    def alti(self) -> list[float] | None:
        """Off-diagonal share of max(0, ‖y‖₁ − ‖y − T‖₁)."""
        terms = self.normed if self.around.order == "post" else self.residual
        if terms is None:
            return None
        whole = self.residual.sum(1) + self.bias
        y = self.around.norm.double()(whole) if self.around.order == "post" else whole
        out = []
        for i in range(self.asked):
            row = [max(0.0, float(y[i].abs().sum() - (y[i] - terms[i, j]).abs().sum())) for j in range(self.read)]
            out.append(1 - row[i] / sum(row))
        return out

    @torch.no_grad()
    def globenc(self, second_norm, second_input) -> list[float]:
        """Off-diagonal share of ‖term through both norms‖, with the second norm's real statistics."""
        terms = self.through(second_norm, self.normed, second_input)
        norms = terms.norm(dim=-1)
        return [float(1 - norms[i, i] / norms[i].sum()) for i in range(self.asked)]


def ratio(terms: torch.Tensor, i: int) -> float:
    others = torch.zeros_like(terms[0])
    for j in range(len(terms)):
        if j != i:
            others += terms[j]
    return float(others.norm() / (others.norm() + terms[i].norm()))


def mean_and_error(values: list[float]) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values, ddof=1) / len(values) ** 0.5)


@torch.no_grad()
def oracle(subject, examples) -> dict[Any, Any]:
    """What the lens must give, by (variable, site, …)."""
    batch = subject.encode(examples)
    watch = Watch(subject)
    watch.run(batch)
    lists: dict[Any, list[Any]] = {}
    for around in subject.anatomy.sites:
        site = around.site
        query_tokens, key_tokens = batch.queries(site), batch.keys(site)
        for text in range(len(examples)):
            terms = Terms(watch, around, text, int(query_tokens.mask[text].sum()), int(key_tokens.mask[text].sum()))
            _per_text(lists, site, terms, {name: mask[text] for name, mask in key_tokens.categories.items()})
    return lists


def _per_text(lists: dict[Any, list[Any]], site, terms: Terms, kinds) -> None:
    def note(*key_and_value):
        *key, value = key_and_value
        lists.setdefault(tuple(key), []).append(value)

    norms, f = terms.parts.norm(dim=-1), terms.f.norm(dim=-1)
    variants = {name: variant.norm(dim=-1) for name, variant in terms.variants().items()}
    for kind in CATEGORIES:
        members = [j for j in range(terms.read) if kinds[kind][j]]
        always = kind in ("punctuation", "period_comma", "other")
        for h in range(terms.around.heads):
            norm = norms[h]
            if members or always:
                note("weight", site, h, kind, float(terms.alpha[h][:, members].sum() / terms.asked))
                note("norm", site, h, kind, float(norm[:, members].sum() / terms.asked))
                note("norm_share", site, h, kind, float(norm[:, members].sum() / norm.sum()))
            if members:
                note("f_norm", site, h, kind, float(f[h, members].mean()))
            for i in range(terms.asked):
                for j in members:
                    if terms.alpha[h, i, j] > 0:  # what the mask hides is no pair
                        note("pair", site, kind, (float(terms.alpha[h, i, j]), float(f[h, j])))
        for name, norm in variants.items():
            if members or always:
                note("all_heads_norm", site, name, kind, float(norm[:, members].sum() / terms.asked))
                note("all_heads_share", site, name, kind, float(norm[:, members].sum() / norm.sum()))
    for h in range(terms.around.heads):
        lists.setdefault(("f", site, h), []).extend(f[h].tolist())
    for name, values in terms.ratios().items():
        note("mixing", site, name, values)
    if terms.residual is not None and terms.around.gate is None:
        note("expansion", site, float((terms.f.sum(0).norm(dim=-1) / terms.x.norm(dim=-1)).mean()))


def correlation(pairs: list[tuple[float, float]]) -> float | None:
    # Equal in 16 bits is equal, as in the lens.
    columns = [np.frexp(np.array(column)) for column in zip(*pairs, strict=True)]
    alpha, f = (np.ldexp(np.round(mantissa * 2**16), exponent) for mantissa, exponent in columns)
    if len(set(alpha)) < 2 or len(set(f)) < 2:
        return None
    return float(spearmanr(alpha, f).statistic)


def close(found, wanted, relative, scale=0.1):
    """Within a relative error; of numbers far smaller than the others, of a tenth."""
    assert abs(found - wanted) <= relative * max(abs(wanted), scale), (found, wanted)


class Cells:
    """The numbers of a result by their labels, quickly."""

    def __init__(self, data):
        self.arrays = {name: (array.dims, array.values) for name, array in data.items()}
        self.index = {dim: {label: k for k, label in enumerate(data[dim].values.tolist())} for dim in data.dims}

    def __call__(self, name, **labels):
        dims, values = self.arrays[name]
        return values[tuple(self.index[dim][labels[dim]] for dim in dims)]


def compare(data, wanted, relative, *, pairs=True):
    """Every number of the oracle, and which there are."""
    cells = Cells(data)
    for (variable, site, *rest), values in wanted.items():
        at = {"stack": site.name, "layer": site.layer + 1}
        if variable in ("weight", "norm", "norm_share", "f_norm"):
            compare_mean(cells, variable, {**at, "head": rest[0] + 1, "category": rest[1]}, values, relative)
        elif variable in ("all_heads_norm", "all_heads_share"):
            compare_mean(cells, variable, {**at, "variant": rest[0], "category": rest[1]}, values, relative)
        elif variable == "expansion":
            compare_mean(cells, variable, at, values, relative)
        elif variable == "f":
            figures = {"mean": np.mean(values), "min": min(values), "max": max(values)}
            for name, figure in figures.items():
                close(cells(f"f_{name}", **at, head=rest[0] + 1), figure, relative)
            spread = {"sd": np.std(values), "cv": np.std(values) / np.mean(values)}
            for name, figure in spread.items():  # a difference of squares
                close(cells(f"f_{name}", **at, head=rest[0] + 1), figure, max(relative, 1e-7))
        elif variable == "mixing":
            compare_mean(cells, "mixing", {**at, "ratio": rest[0]}, [np.mean(v) for v in values], relative)
            close(cells("mixing_min", **at, ratio=rest[0]), min(map(min, values)), relative)
            close(cells("mixing_max", **at, ratio=rest[0]), max(map(max, values)), relative)
        elif pairs and rest[0] not in ("first", "last"):
            rho = correlation(values)
            assert cells("spearman_count", **at, category=rest[0]) == (0 if rho is None else len(values))
            if rho is not None:
                close(cells("spearman", **at, category=rest[0]), rho, 1e-9)
    named = {name for name, *_ in wanted}
    assert named >= {"weight", "norm", "f_norm", "all_heads_norm", "all_heads_share", "f", "mixing", "pair"}
    exists = {(site.name, site.layer + 1, rest[0]) for (name, site, *rest) in wanted if name == "mixing"}
    there = data.mixing_count.to_dataframe()["mixing_count"]
    assert {key for key, count in there.items() if count > 0} == exists


def compare_mean(cells, variable, cell, values, relative):
    """Mean, number of texts, and standard error (whose square is a difference)."""
    close(cells(variable, **cell), np.mean(values), relative)
    assert cells(f"{variable}_count", **cell) == len(values)
    if len(values) > 1 and relative < 1e-9:
        close(cells(f"{variable}_se", **cell), mean_and_error(values)[1], 1e-7)
