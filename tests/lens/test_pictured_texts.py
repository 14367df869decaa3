"""Lenses on texts with pictures: a patch is given, never predicted, and towers of pictures are nobody's text."""

import copy
import json

import numpy as np
import pytest
import torch
import transformers as hf
from tiny.pictures import picture_model
from tiny.processors import processor_of

import lorgnette as lo
from lorgnette.lens.losses import IGNORED, right_tokens

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'lorgnette[pictures]'")

TEXTS = ("what is it", "a red cat", "a cat is red", "it is")


def speaking(kind: str = "llava", seed: int = 0):
    """A tiny model with its output head, in float64 so that twins agree to many digits."""
    base, _ = picture_model(kind, seed)
    torch.manual_seed(seed)
    made = getattr(hf, type(base).__name__.replace("Model", "ForConditionalGeneration"))
    return made(base.config).eval().double()


@pytest.fixture(scope="module")
def subject():
    return lo.Subject(speaking(), processor_of("llava"))


@pytest.fixture(scope="module", params=["llava", "smolvlm", "qwen2_5_vl", "internvl"])
def seeing(request):
    return lo.Subject(speaking(request.param), processor_of(request.param))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    rows = []
    for number, text in enumerate(TEXTS):
        pixels = np.random.default_rng(number).integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        rows.append({"text": text, "image": f"{number}.png"})
    file = folder / "texts.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(file)


def losses(model, processor, corpus, *hooks):
    """The mean cross-entropy of the words behind a picture, text by text, from the plain model."""
    out = []
    for number, text in enumerate(TEXTS):
        picture = Image.open(corpus.replace("texts.jsonl", f"{number}.png"))
        given = processor(text=[f"<image>\n{text}"], images=[picture], return_tensors="pt")
        given["pixel_values"] = given["pixel_values"].double()
        with torch.no_grad():
            logits = model(**given).logits[0]
        ids = given["input_ids"][0]
        predicted = [at for at in range(len(ids) - 1) if int(ids[at + 1]) != 90]
        assert len(predicted) == len(text.split())
        out.append(torch.nn.functional.cross_entropy(logits[predicted], ids[[at + 1 for at in predicted]]).item())
    return np.array(out)


def test_no_patch_is_to_be_predicted(subject):
    batch = subject.encode([subject.example("a red cat", image=Image.new("RGB", (20, 30)))])
    right = right_tokens(subject, "causal", batch)[0]
    ids = batch.inputs["input_ids"][0]
    assert right[right != IGNORED].tolist() == ids[-3:].tolist()
    assert (right != IGNORED).nonzero()[:, 0].tolist() == [16, 17, 18]


def test_the_loss_without_a_head_is_that_of_the_plain_model(subject, corpus):
    """Every head's output is zeroed by a hook on the plain model, which has no other part of this library in it."""
    data = lo.look(subject, corpus, lo.lens.get("importance", ablations=("zero",)), progress=False)["importance"].data
    model, processor = speaking(), processor_of("llava")
    whole = losses(model, processor, corpus)
    np.testing.assert_allclose(float(data["loss"]), whole.mean(), rtol=1e-6)
    for layer in range(2):
        output = model.model.language_model.layers[layer].self_attn.o_proj
        for head in range(4):
            width = output.in_features // 4

            def zero(module, arguments, head=head, width=width):
                states = arguments[0].clone()
                states[..., head * width : (head + 1) * width] = 0
                return (states,)

            handle = output.register_forward_pre_hook(zero)
            change = losses(model, processor, corpus) - whole
            handle.remove()
            cell = data.sel(stack="decoder", layer=layer + 1, head=head + 1, ablation="zero")
            np.testing.assert_allclose(float(cell["loss_change"]), change.mean(), rtol=1e-4, atol=1e-7)
            np.testing.assert_allclose(float(cell["loss_change_se"]), change.std(ddof=1) / 2, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    "name",
    [
        "circuits", "composition", "context", "convexity", "distances", "edges", "effects", "gating", "gradients",
        "logitlens", "removal", "roles", "rollout", "relevance",
    ],
)  # fmt: skip
def test_every_lens_for_language_models_takes_texts_with_pictures(subject, corpus, name):
    """What is known of a text with a picture is known of the language model alone, by the names of its stack."""
    data = lo.look(subject, corpus, name, progress=False)[name].data
    assert [str(stack) for stack in data["stack"].values] == ["decoder"]
    assert any(bool(np.isfinite(data[v].values).any()) for v in data.data_vars if data[v].dtype.kind == "f")


def test_direct_effects_sum_to_the_logit(subject, corpus):
    data = lo.look(subject, corpus, "effects", progress=False)["effects"].data
    np.testing.assert_allclose(float(data["terms"].sum()), float(data["logit"]), rtol=1e-6)


def test_the_last_row_of_the_logit_lens_is_the_model(subject, corpus):
    data = lo.look(subject, corpus, "logitlens", progress=False)["logitlens"].data
    np.testing.assert_allclose(
        float(data["loss"].sel(stack="decoder").values.ravel()[-1]),
        losses(speaking(), processor_of("llava"), corpus).mean(),
        rtol=1e-6,
    )


PARTS = ("image", "text", "special")


def runs(subject, corpus):
    """Each text alone: its batch, what was captured, and which tokens are of each part."""
    for number, text in enumerate(TEXTS):
        picture = Image.open(corpus.replace("texts.jsonl", f"{number}.png"))
        batch = subject.encode([subject.example(text, image=picture)])
        with torch.no_grad():
            seen = lo.attention(subject, **batch.inputs)
        yield batch, seen, [batch.source.categories[part][0] for part in PARTS]


def check_means(data, name, rows, **at):
    """The mean over texts and its standard error; NaN marks a text without a value."""
    rows = np.stack(rows)
    count = (~np.isnan(rows)).sum(0)
    cells = data.sel(stack="decoder", category=list(PARTS), **at)
    np.testing.assert_array_equal(cells[f"{name}_count"], count)
    mean = np.where(count > 0, np.nansum(rows, 0) / np.maximum(count, 1), np.nan)
    np.testing.assert_allclose(cells[name], mean, rtol=1e-5, atol=1e-8)
    if (count > 1).all():
        wanted = np.nanstd(rows, 0, ddof=1) / np.sqrt(count)
        np.testing.assert_allclose(cells[f"{name}_se"], wanted, rtol=1e-4, atol=1e-8)


def test_sinks_by_part(seeing, corpus):
    data = lo.look(seeing, corpus, lo.lens.get("sinks", parts=PARTS, thresholds=(0.1,)), progress=False)["sinks"].data
    rows = []
    for _, seen, parts in runs(seeing, corpus):
        received = seen["decoder.weights"][:, 0].mean(-2)  # [layer head key]
        rows.append(torch.stack([(received[..., part] > 0.1).any(-1) for part in parts], -1).double().numpy())
    check_means(data, "rate", rows, threshold=0.1)


def test_geometry_by_part(seeing, corpus):
    data = lo.look(seeing, corpus, lo.lens.get("geometry", parts=PARTS), progress=False)["geometry"].data
    heads, states = [], []
    for batch, seen, parts in runs(seeing, corpus):
        vectors = torch.stack(
            [seen[f"decoder.{kind}"][:, 0] for kind in ("query", "key", "value")], 2
        )  # [layer head kind token dim]
        heads.append(np.stack([pairwise(vectors[..., part, :]) for part in parts], -1))
        with torch.no_grad():
            output = seeing.run(batch, output_hidden_states=True)
        hidden = torch.stack(output.hidden_states)[:, 0]
        states.append(np.stack([pairwise(hidden[:, part]) for part in parts], -1))
    check_means(data, "part_sim", heads)
    check_means(data, "state_part_sim", states)


def pairwise(vectors):
    """The mean cosine of all pairs, pair by pair; NaN for a single vector."""
    units = torch.nn.functional.normalize(vectors.double(), dim=-1)
    n = units.shape[-2]
    pairs = [(units[..., i, :] * units[..., j, :]).sum(-1) for i in range(n) for j in range(i)]
    return (torch.stack(pairs).mean(0) if pairs else torch.full(vectors.shape[:-2], torch.nan)).numpy()


def test_relevance_by_part(seeing, corpus):
    lens = lo.lens.get("relevance", parts=PARTS)
    data = lo.look(seeing, corpus, lens, progress=False)["relevance"].data["token_share"]
    shares = []
    for batch, _, parts in runs(seeing, corpus):
        tokens = lo.explain(seeing, batch, "attnlrp").tokens[0]
        shares.append([float(tokens[part].sum() / tokens.abs().sum()) for part in parts])
    np.testing.assert_allclose(data.sel(category=list(PARTS)), np.mean(shares, 0), rtol=1e-5)


def test_importance_by_part(seeing, corpus):
    """Against the plain model, in which a hook scales what a head takes from a part."""
    lens = lo.lens.get("importance", ablations=("zero",), parts=PARTS)
    data = lo.look(seeing, corpus, lens, progress=False)["importance"].data
    model, layer, head = copy.deepcopy(seeing.model), 1, 2
    output = dict(model.named_modules())[path(seeing, layer)]
    width = output.in_features // 4
    changes, slopes = [], []
    for batch, seen, parts in runs(seeing, corpus):
        weights, value = seen["decoder.weights"][layer, 0, head], seen["decoder.value"][layer, 0, head]

        def loss(taken, gate, batch=batch):
            def scaled(module, arguments):
                states = arguments[0].clone()
                states[..., head * width : (head + 1) * width] += (gate - 1) * taken
                return (states,)

            handle = output.register_forward_pre_hook(scaled)
            logits, ids = model(**batch.inputs).logits[0], batch.inputs["input_ids"][0]
            handle.remove()
            predicted = [at for at in range(len(ids) - 1) if int(ids[at + 1]) != 90]
            return torch.nn.functional.cross_entropy(logits[predicted], ids[[at + 1 for at in predicted]])

        of_parts = [weights[:, part] @ value[part] for part in parts]
        with torch.no_grad():
            whole = loss(of_parts[0], 1)
            changes.append([float(loss(taken, 0) - whole) for taken in of_parts])
        gates = [torch.ones((), dtype=torch.float64, requires_grad=True) for _ in parts]
        for gate, taken in zip(gates, of_parts, strict=True):
            loss(taken, gate).backward()
        slopes.append([abs(float(gate.grad)) for gate in gates])
    cell = data.sel(stack="decoder", layer=layer + 1, head=head + 1, category=list(PARTS))
    np.testing.assert_allclose(cell["part_loss_change"], np.mean(changes, 0), rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(cell["part_loss_change_se"], np.std(changes, 0, ddof=1) / 2, rtol=1e-3, atol=1e-8)
    np.testing.assert_allclose(cell["part_sensitivity"], np.mean(slopes, 0), rtol=1e-4, atol=1e-8)


def path(seeing, layer):
    """Where the output map of a layer of the language model is."""
    wanted = next(site.output for site in seeing.anatomy.sites if site.site == lo.Site("decoder", "self", layer))
    return next(name for name, module in seeing.model.named_modules() if module is wanted)


def test_deletion_over_a_corpus_is_the_mean_of_its_texts(subject, corpus):
    found = lo.patch_test(subject, corpus, "gradient_x_input", shares=(0.1, 0.5), draws=2, seed=3)
    falls = []
    for number, (batch, _, _) in enumerate(runs(subject, corpus)):
        scores = lo.explain(subject, batch, "gradient_x_input", lo.Next()).tokens
        one = lo.patch_deletion(subject, batch, scores, shares=(0.1, 0.5), draws=2, seed=3 + number)
        falls.append(one["fall"].values[..., 0])
    falls = np.stack(falls)
    gain = falls[:, 0] - falls[:, 1]
    for name, values in (("fall", falls), ("gain", gain)):
        np.testing.assert_allclose(found[name], values.mean(0), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(found[f"{name}_se"], values.std(0, ddof=1) / 2, rtol=1e-6, atol=1e-9)
        assert bool((found[f"{name}_count"] == 4).all())
    with pytest.raises(lo.UserError, match="has no picture"):
        lo.patch_test(subject, ["a cat", "it is"])
    with pytest.raises(lo.UserError, match="two texts or more"):
        lo.patch_test(subject, [subject.example("a cat", image=Image.new("RGB", (20, 30)))])
