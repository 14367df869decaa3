"""Voita et al. 2019, pruning: claims from made-up cells whose truth is known, and the cells on a tiny Marian."""

import gzip
import json
import random

import numpy as np
import pytest
from made_cells import with_results

from lorgnette.attending import Site
from lorgnette.errors import UserError
from lorgnette.statistics.estimate import Estimate as Measured
from reproductions.frame.cells import Cell
from reproductions.frame.page import Outcome
from reproductions.frame.settings import Machine, Settings
from reproductions.frame.statistics import bootstrap
from reproductions.voita2019 import STUDY
from reproductions.voita2019.claims import claims
from reproductions.voita2019.grid import QUICK, grid, prepare, sizes_of
from reproductions.voita2019.measure_pruning import chosen_at_random, pruned, small, table_of
from reproductions.voita2019.pruning import Curve, patterns, roles, survival

STACKS = ("encoder", "decoder", "cross")


def score(bleu, seed=0):
    noise = np.random.default_rng(seed).normal(0, 0.5, 200)
    return {"bleu": bleu, "brevity": 1.0, "signature": "nrefs:1|made up", "texts": 3071, "beams": 1,
            "draws": list(bleu + noise)}  # fmt: skip


def scores(bleu):
    return {"validation": score(bleu), "test": score(bleu), "mscoco": score(bleu - 5)}


def kept(counts, stacks=STACKS):
    """The first heads of each layer; of cross-attention the upper layers keep more, of the decoder the lower."""
    out = {}
    for stack in stacks:
        layers = [[] for _ in range(6)]
        order = range(6) if stack == "decoder" else range(5, -1, -1)
        for place in [layer for layer in order for _ in range(8)][: counts[STACKS.index(stack)]]:
            layers[place].append(len(layers[place]))
        out[stack] = layers
    return out


def point(counts, bleu, stacks=STACKS, control=None):
    made = {"kept": kept(counts, stacks), "scores": scores(bleu), "corpus_fingerprint": "f", "device": "cpu"}
    made["fitted"] = {"steps": 20.0}
    made["gates"] = {"kept_by": {"code": sum(counts), "paper": sum(counts)}}
    if control is not None:
        made["control"] = {"kept": made["kept"], "scores": scores(control)}
    return made


def looked_at():
    """What stays in the encoder is its last layer: heads with a clear role."""
    low = [[0.05] * 8 for _ in range(6)]
    names = [f"{how}_{name}" for how in ("peak", "mass") for name in ("self", "previous", "next", "last")]
    out = {name: [list(row) for row in low] for name in (*names, "rarest")}
    out["peak_previous"][5] = [0.91 + head / 100 for head in range(8)]
    return {**out, "confidence": [[0.5] * 8 for _ in range(6)], "words": 9.0}


@pytest.fixture
def results():
    """Pruning all of opus-mt costs little, that of the encoder alone a lot; gates beat chance only in the first."""
    tuned = {"before": scores(60.0), "after": scores(60.0), "beam 4": {"test": score(61.0)}}
    made = {"opus-tuned": {"scores": tuned, "patterns": looked_at()}}
    made["opus-all-lambda0"] = point((48, 48, 48), 60.0)
    for strength, counts, bleu in ((0.03, (30, 36, 40), 60.1), (0.3, (8, 13, 20), 59.8), (3.0, (2, 3, 5), 50.0)):
        made[f"opus-all-lambda{strength:g}"] = point(counts, bleu, control=bleu - 3)
    made["opus-all-empty"] = point((0, 48, 48), 40.0)
    made["opus-encoder-lambda0"] = point((48, 48, 48), 60.0)
    for strength, number, bleu in ((0.03, 30, 58.0), (0.3, 10, 55.0)):
        made[f"opus-encoder-lambda{strength:g}"] = point((number, 48, 48), bleu, ("encoder",), control=bleu + 1)
    made["opus-encoder-long-lambda0"] = point((48, 48, 48), 61.0)
    made["opus-encoder-long-lambda0.03"] = point((20, 48, 48), 60.5, ("encoder",))
    made["small-all-lambda0"] = point((48, 48, 48), 40.0)
    made["small-all-lambda0.3"] = point((20, 20, 20), 38.0)
    made["small-scratch-lambda0.3"] = point((20, 20, 20), 36.0)
    for mode, bleu in (("scratch", 20.0), ("frozen", 18.0), ("tuned", 23.0)):
        made[f"transfer-small-{mode}"] = {"scores": {"test": score(bleu)}, "best": {"epoch": 3.0}, "epochs": 4.0}
    made["small-en-fr"] = {"scores": {"test": score(40.0)}, "patterns": looked_at()}
    made["small-en-ru"] = {"scores": {"tatoeba": score(20.0), "subtitles": score(3.0)}}
    for seed in range(3):
        right = {"test": 0.9 + seed / 1000}
        other = {"importance": 0.88, "random": 0.8, "importance_untrained": 0.7, "random_untrained": 0.6}
        points = [{"lambda": 0.0, "heads": 72, "gates": right}, {"lambda": 0.1, "heads": 20, "gates": right}]
        points[1] |= {name: {"test": value} for name, value in other.items()}
        made[f"classes-minilm-sst2-seed{seed}"] = {"points": points}
    return {f"pruning-{key}": value for key, value in made.items()}


def judged(results):
    return {claim.id: claim for claim in claims(with_results(STUDY, results))}


def test_the_claims_say_what_was_planted(results):
    expected = {
        "third-opus-all": "cannot tell",  # one short run
        "third-opus-encoder": "cannot tell",
        "third-opus-encoder-long": "cannot tell",
        "chance-opus-all": "holds",
        "chance-opus-encoder": "does not hold",
        "cross-over-encoder-opus-all": "holds",
        "cross-higher-opus-all": "holds",
        "roles-last-opus-encoder": "cannot tell",  # pools layers
        "longer-opus-encoder": "holds",
        "trained-over-scratch": "holds",
        "transfer-small-tuned": "holds",
        "transfer-small-frozen": "does not hold",
        "classes-minilm-sst2-gates-random": "holds",
    }
    verdicts = {name: claim.verdict for name, claim in judged(results).items()}
    assert {name: verdicts[name] for name in expected} == expected
    assert verdicts["roles-last-in-layers-opus-encoder"] != "holds"  # all of a layer, or none of it, stays


def test_numbers_are_those_of_the_cells(results):
    found = judged(results)
    lost = found["third-opus-all"].estimate
    assert lost.value == pytest.approx(-0.2)
    assert lost.interval == pytest.approx((-0.2, -0.2))  # the same noise in both, so nothing but the difference
    assert found["trained-over-scratch"].estimate.value == pytest.approx(2.0)
    assert found["chance-opus-all"].estimate.value == pytest.approx(3.0)
    assert found["longer-opus-encoder"].estimate.value == pytest.approx(-0.5 - (56.5 - 60.0))  # 20: between 30 and 10
    assert found["third-opus-encoder-long"].estimate.value is None  # no λ left a third
    cells = with_results(STUDY, results)
    whole = Curve.of(cells, "opus-all")
    assert whole.sparsest_within().left == 41
    assert whole.best_with().strength == 0.3
    assert Curve.of(cells, "opus-encoder").sparsest_within() is None
    value, draws = Curve.of(cells, "small-all").at(102)  # halfway between 60 and 144 heads
    assert value == pytest.approx(39)
    assert draws.mean() == pytest.approx(39, abs=0.2)


def test_gates_from_scratch_are_compared_only_where_the_other_curve_is(results):
    results["pruning-small-scratch-lambda3"] = point((1, 1, 1), 10.0)  # far below the sparsest trained model
    assert judged(results)["trained-over-scratch"].estimate.value == pytest.approx(2.0)
    del results["pruning-small-scratch-lambda0.3"]
    assert "trained-over-scratch" not in judged(results)


def test_runs_that_were_not_trained_alike_are_not_decided(results):
    results["pruning-small-scratch-lambda0.3"]["fitted"] = {"steps": 200.0}
    claim = judged(results)["trained-over-scratch"]
    assert claim.verdict == "cannot tell"
    assert claim.undecided


def test_a_run_that_was_still_learning_decides_nothing_if_it_is_the_one_to_compare_with(results):
    results["pruning-transfer-small-tuned"]["epochs"] = 3.0
    assert judged(results)["transfer-small-tuned"].verdict == "holds"
    results["pruning-transfer-small-scratch"]["epochs"] = 3.0
    claim = judged(results)["transfer-small-tuned"]
    assert claim.verdict == "cannot tell"
    assert claim.undecided


def test_points_know_what_was_not_pruned(results):
    cells = with_results(STUDY, results)
    curve = Curve.of(cells, "opus-encoder")
    last = curve.points[-1]
    assert (last.heads("encoder"), last.heads("cross"), last.left) == (10, 48, 10)
    assert [point.left for point in curve.points] == [48, 30, 10]
    whole = Curve.of(cells, "opus-all")
    assert whole.points[-1].strength is None
    assert whole.points[-1].minus(whole.whole).value == pytest.approx(-20)
    assert survival(whole.gated).sel(stack="cross").sum(("layer", "head")).values.tolist() == [40, 20, 5]
    given = roles(patterns(cells, "opus-encoder")).values
    assert set(given[5]) == {"positional"}
    assert set(given[0]) == {"none of these"}


def test_a_page_of_all_and_of_some_cells(results):
    few = {key: results[key] for key in list(results)[:5]}
    for some in (results, few, {"pruning-small-en-ru": results["pruning-small-en-ru"]}):
        outcome = Outcome.of(STUDY, with_results(STUDY, some))
        assert json.loads(outcome.results())["tables"]
        assert outcome.page("README.md")
        assert outcome.page("APPENDIX.md")
    whole = Outcome.of(STUDY, with_results(STUDY, results))
    assert {figure.name for figure in whole.figures} >= {"bleu", "roles", "types", "layers", "classes"}


def test_the_grid(tmp_path):
    full = grid(Settings(out=tmp_path, seeds=STUDY.seeds), {})
    counts = {
        kind: sum(cell.labels["kind"] == kind for cell in full.values()) for kind in ("curve", "classes", "transfer")
    }
    assert counts == {"curve": 3 * 8 + 6 + 5, "classes": 12, "transfer": 6}
    assert sum(cell.labels.get("curve") == "opus-encoder" for cell in full.values()) == 8
    trained = [key for key, cell in full.items() if cell.labels["part"] == "pruning"]
    assert trained[0] == "pruning-opus-tuned"
    quick = grid(Settings(out=tmp_path, quick=True, seeds=(0, 1)), {})
    assert len(quick) < 40
    here = Machine(models=str(tmp_path))
    prepare(here, {key: full[key] for key in ("pruning-small-en-fr", "pruning-small-all-lambda1")})
    with pytest.raises(UserError, match="The model no-such-model is not here"):
        prepare(here, {"one": Cell("nowhere:none", {"model": "no-such-model"})})


def test_random_heads_are_as_many_of_each_stack():
    sites = {Site("encoder", "self", layer): [0, 1] if layer else [] for layer in range(3)}
    sites |= {Site("decoder", "cross", 0): [0, 1, 2]}
    heads = dict.fromkeys(sites, 4)
    drawn = chosen_at_random(sites, heads, seed=1)
    table = table_of(drawn)
    assert sum(map(len, table["encoder"])) == 4
    assert sum(map(len, table["cross"])) == 3
    assert drawn == chosen_at_random(sites, heads, seed=1)
    assert drawn != chosen_at_random(sites, heads, seed=2)


def test_an_interval_over_heads_is_a_bootstrap_over_heads():
    values = np.arange(40.0)[:, None]
    found = bootstrap(lambda group: float(group.mean()), values, over="heads")
    assert found.value == pytest.approx(19.5)
    assert found.interval == pytest.approx(Measured.mean(values[:, 0]).interval, rel=0.1)
    assert bootstrap(lambda group: float("nan"), values, over="heads") is None


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Multi30k of made-up words: each English word has one French word."""
    folder = tmp_path_factory.mktemp("data") / "multi30k"
    folder.mkdir()
    draw = random.Random(0)
    words = [f"{a}{b}" for a in ("ba", "do", "ki", "lu", "me") for b in ("ta", "ro", "si", "nu")]
    sizes = {"train": 60, "val": 20}
    sizes |= dict.fromkeys(("test_2016_flickr", "test_2017_flickr", "test_2018_flickr", "test_2017_mscoco"), 4)
    for split, count in sizes.items():
        sentences = [[draw.choice(words) for _ in range(draw.randint(3, 7))] for _ in range(count)]
        for language, turn in (("en", lambda word: word), ("fr", lambda word: word[::-1])):
            text = "".join(" ".join(map(turn, words)) + "\n" for words in sentences)
            with gzip.open(folder / f"{split}.{language}.gz", "wt", encoding="utf-8") as stream:
                stream.write(text)
    return folder.parent


def test_a_tiny_marian_is_trained_gated_and_pruned(data, tmp_path):
    told = {**sizes_of(QUICK), "small": 1, "gates": 2, "pieces": 60, "limit": 40, "batch": 20, "draws": 20}
    machine = Machine(data=str(data), scratch=tmp_path)
    first = small(languages="en-fr", sizes=told, machine=machine)
    assert np.shape(first["patterns"]["peak_previous"]) == (2, 4)
    assert first["scores"]["test"]["texts"] == 12
    result = pruned(model="small", where="encoder", strength=50.0, control=True, sizes=told, machine=machine)
    json.dumps(result, allow_nan=False)
    assert set(result["kept"]) == {"encoder"}
    left = sum(map(len, result["kept"]["encoder"]))
    assert left == result["gates"]["kept_by"]["code"]
    assert sum(map(len, result["control"]["kept"]["encoder"])) == left
    assert len(result["scores"]["test"]["draws"]) == 20


def test_the_published_setting_is_the_papers_models_on_its_pairs(tmp_path):
    cells = grid(Settings(out=tmp_path, published=True), {})
    sizes = [cell.arguments["sizes"] for cell in cells.values()]
    assert {one["pairs"] for one in sizes} == {"wmt_en_ru", "opensubtitles_en_ru"}
    assert {tuple(sorted(one["shape"].items())) for one in sizes} == {
        (("feed_forward", 2048), ("heads", 8), ("layers", 6), ("width", 512))
    }
    curves = {cell.labels["curve"] for cell in cells.values() if cell.labels["kind"] == "curve"}
    assert curves == {f"{data}-{what}" for data in ("wmt", "opensubtitles") for what in ("encoder", "all", "scratch")}
    usual = grid(Settings(out=tmp_path, seeds=STUDY.seeds), {})
    assert not any({"pairs", "shape"} & set(cell.arguments.get("sizes", {})) for cell in usual.values())
    with pytest.raises(UserError, match="wmt_en_ru") as missing:
        prepare(Machine(data=str(tmp_path)), cells)
    assert "statmt.org" in str(missing.value)


def test_a_curve_of_the_paper_stands_beside_the_numbers_of_its_data(results):
    """Table 2 and figure 7 have other numbers for either data set; a loss after the whole training is decided."""
    made = {}
    for data in ("wmt", "opensubtitles"):
        made[f"{data}-model"] = {"scores": {"test": score(30.0)}, "patterns": looked_at()}
        made[f"{data}-all-lambda0"] = point((48, 48, 48), 30.0)
        made[f"{data}-all-lambda0.3"] = point((8, 13, 15), 29.8)
        made[f"{data}-encoder-lambda0"] = point((48, 48, 48), 30.0)
        made[f"{data}-encoder-lambda0.3"] = point((10, 48, 48), 27.0, ("encoder",))
        made[f"{data}-scratch-lambda0.3"] = point((8, 13, 15), 29.0)
    own = with_results(STUDY, {f"pruning-{key}": value for key, value in made.items()}, published=True)
    found = {claim.id: claim for claim in claims(own)}
    printed = {"wmt": (-0.7, -0.15, 0.39), "opensubtitles": (-0.13, -0.25, 0.23)}
    for data, (everywhere, encoder, over) in printed.items():
        assert found[f"third-{data}-all"].verdict == "holds"
        assert found[f"third-{data}-encoder"].verdict == "does not hold"
        assert found[f"third-{data}-all"].published.value == everywhere
        assert found[f"third-{data}-encoder"].published.value == encoder
        assert found[f"trained-over-scratch-{data}"].published.value == over
        assert found[f"trained-over-scratch-{data}"].estimate.value == pytest.approx(0.8)
    outcome = Outcome.of(STUDY, own)
    assert "--published" in outcome.page("README.md")
    assert "On OpenSubtitles, with at most a third of the heads" in outcome.answer()
    assert outcome.page("APPENDIX.md")
    assert {figure.name for figure in outcome.figures} >= {"bleu", "types", "layers", "roles"}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """WMT in small: files of sentences, line by line, as whoever has them keeps them."""
    folder = tmp_path_factory.mktemp("data") / "wmt_en_ru"
    folder.mkdir()
    draw = random.Random(1)
    words = [f"{a}{b}" for a in ("ba", "do", "ki", "lu", "me") for b in ("ta", "ro", "si", "nu")]
    for split, count in (("train", 40), ("val", 8), ("test", 6)):
        sentences = [[draw.choice(words) for _ in range(draw.randint(3, 6))] for _ in range(count)]
        for language, turn in (("en", lambda word: word), ("ru", lambda word: word[::-1])):
            text = "".join(" ".join(map(turn, sentence)) + "\n" for sentence in sentences)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    return folder.parent


def test_the_papers_pairs_are_read_trained_on_and_pruned(pairs, tmp_path):
    told = {**sizes_of(QUICK), "small": 1, "gates": 1, "pieces": 60, "limit": None, "batch": 20, "draws": 20}
    told |= {"pairs": "wmt_en_ru", "shape": {"layers": 1, "heads": 2}}
    machine = Machine(data=str(pairs), scratch=tmp_path)
    first = small(languages="wmt_en_ru", sizes=told, machine=machine)
    assert first["scores"]["test"]["texts"] == 6
    assert np.shape(first["patterns"]["peak_previous"]) == (1, 2)
    result = pruned(model="small", where="all", strength=0.1, control=False, sizes=told, machine=machine)
    assert set(result["kept"]) == set(STACKS)
    assert set(result["scores"]) == {"validation", "test"}
