"""The sentences on flow, shape, trust and pruning: their numbers are those of the results, found here another way."""

import numpy as np
import pytest
import xarray as xr
from made import provenance
from scipy.stats import false_discovery_control, t
from tiny import EXAMPLES, TREEBANK, classifier, marian

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.explaining import NAMES
from lorgnette.lens.rationales.lens import pairs_tested
from lorgnette.reporting import figures_of, findings
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate

LENSES = ["norms", "frequency", "rollout", "gradients", "relevance", "rationales", "geometry", "convexity", "cones",
          "probes", "importance"]  # fmt: skip


@pytest.fixture(scope="module")
def results(few_steps):
    return lo.look(classifier(), TREEBANK, LENSES, progress=False)


def said(results, lens, number):
    """The one finding of a lens that has this number."""
    found = [finding for finding in findings({lens: results[lens]}) if number in finding.numbers]
    assert len(found) == 1, [finding.text for finding in findings({lens: results[lens]})]
    return found[0]


def numbers(results, lens, variable, **at):
    """{(layer, head): value} by a plain loop."""
    array = results[lens].data[variable].sel(stack="encoder", **at)
    return {(int(a), int(b)): float(array.sel(layer=a, head=b)) for a in array["layer"] for b in array["head"]}


def test_every_lens_of_ours_speaks_and_draws(results):
    for name, result in results.items():
        assert findings({name: result}), name
        assert not any(finding.text.startswith(f"{name}:") for finding in findings({name: result})), name
        assert all(figure.chart.to_dict() and len(figure.table) for figure in figures_of(result)), name


def test_frequency(results):
    rho = results["frequency"].data["spearman_all"].sel(stack="encoder")
    found = said(results, "frequency", "norms")
    wanted = {name: rho.sel(measure=name).item() for name in ("weights", "norms")}
    data = results["frequency"].data.sel(stack="encoder")
    ends = {f"{n}_{end}": data[f"spearman_all_{end}"].sel(measure=n).item() for n in wanted for end in ("low", "high")}
    layers = data["spearman"].sel(measure="norms").values
    assert found.numbers == wanted | ends | {"least": layers.min(), "most": layers.max()}
    larger = wanted["norms"] > 0.1 and ends["norms_low"] > 0
    assert ("do not have" in found.text) == (not larger)


def test_rollout(results):
    share = results["rollout"].data["share"].sel(stack="encoder", layer=3, category="self")
    found = said(results, "rollout", "layer")
    assert found.numbers["weights"] == share.sel(measure="weights").item()
    assert (found.numbers["norms"], found.numbers["layer"]) == (share.sel(measure="norms").item(), 3)


def test_gradients(results):
    cells = numbers(results, "gradients", "gradient", category="all")
    (layer, head), top = max(cells.items(), key=lambda item: item[1])
    mean = np.mean(list(cells.values()))
    found = said(results, "gradients", "named")
    assert found.numbers["named"].startswith(f"{layer}.{head} ({top / mean:.1f}× the mean)")
    special = list(numbers(results, "gradients", "gradient", category="cls").values())
    assert found.numbers["cls"] == pytest.approx(np.mean(special) / mean)


def test_relevance(results):
    cells = numbers(results, "relevance", "relevance")
    (layer, head), top = max(cells.items(), key=lambda item: item[1])
    found = said(results, "relevance", "against")
    assert found.numbers["named"].startswith(f"{layer}.{head} ({top:.2f})")
    data = results["relevance"].data.sel(stack="encoder")
    flat = [data[name].values.ravel() for name in ("relevance", "relevance_se", "relevance_count")]
    p = [t.cdf(value / error, count - 1) for value, error, count in zip(*flat, strict=True)]
    assert found.numbers["against"] == int((false_discovery_control(p) < 0.05).sum())
    assert found.numbers["heads"] == 12
    assert found.numbers["share"] == results["relevance"].data["layer_share"].max().item()


def test_a_variable_without_layers_is_drawn_as_in_the_report(results):
    rationales = results["rationales"]
    drawn = rationales.plot("score").chart.to_dict()
    assert "comprehensiveness" in str(drawn)
    with pytest.raises(UserError, match=r"'texts' of the lens 'rationales' has no layers.*the report draws score"):
        rationales.plot("texts")
    with pytest.raises(UserError, match="leave out measure"):
        rationales.plot("score", measure="auprc")


def test_rationales(results):
    score = results["rationales"].data["score"]
    methods = [m for m in score["explanation"].values.tolist() if m not in ("random", "first", "last")]
    by = {m: score.sel(measure="auprc").sel({"explanation": m}).item() for m in methods}
    plausible, faithful = findings({"rationales": results["rationales"]})
    assert plausible.numbers["best"] == NAMES.get(best := max(by, key=by.get), best)
    assert plausible.numbers["auprc"] == max(by.values())
    assert plausible.numbers["chance"] == results["rationales"].data["chance"].item()
    drops = {m: score.sel(measure="comprehensiveness").sel({"explanation": m}).item() for m in (*methods, "random")}
    assert faithful.numbers["drop"] == max(drops[m] for m in methods)
    assert faithful.numbers["guess"] == drops["random"]
    best = max(methods, key=drops.get)
    p = results["rationales"].data["score_difference_p"].sel(measure="comprehensiveness", explanation=best)
    assert ("no explanation does significantly better" in faithful.text) == (p.sel(explanation_b="random") >= 0.05)


def rationales(scores, corpus="planted"):
    """A result of the lens with these means and errors by explanation (errors of different texts), for all measures."""
    measures = ["auprc", "token_recall", "comprehensiveness", "sufficiency"]
    columns = dict.fromkeys(("score", "score_se"), ("explanation", "measure"))
    values = {name: (dims, np.array([[pair[place]] * 4 for pair in scores.values()]))
              for place, (name, dims) in enumerate(columns.items())}  # fmt: skip
    values["score_count"] = (columns["score"], np.full((len(scores), 4), 100))
    means, errors = np.array(list(scores.values())).T
    apart = [[np.subtract.outer(means, means)] * 4, [np.hypot.outer(errors, errors)] * 4]
    two = ("measure", "explanation", "explanation_b")
    coordinates = {"measure": measures, "explanation": list(scores), "explanation_b": list(scores)}
    differences = Estimate(*(xr.DataArray(np.array(part), coordinates, two) for part in apart), 100)
    values["score_difference_p"] = pairs_tested(differences)
    values["score_difference_p_count"] = values["score_difference_p"].notnull().astype(int)
    values |= {"chance": ((), 0.2), "texts": ((), 100)}
    data = xr.Dataset(values, {"explanation": list(scores), "measure": measures}, {"k": "5 words"})
    return Result("rationales", data, provenance(corpus=corpus))


def test_no_winner_without_a_test():
    scores = {"ah": (0.319, 0.02), "attnlrp": (0.309, 0.02), "rollout": (0.1, 0.02), "random": (0.09, 0.02)}
    plausible, faithful = findings({"": rationales(scores)})
    assert (plausible.numbers["best"], plausible.numbers["tied"]) == ("AH", "AttnLRP")
    assert (faithful.numbers["most"], faithful.numbers["tied"]) == ("AH", "AttnLRP")
    plausible, faithful = findings({"": rationales({**scores, "ah": (0.6, 0.02)})})
    assert plausible.numbers["tied"] == faithful.numbers["tied"] == ""
    _, faithful = findings({"": rationales({**scores, "random": (0.3, 0.02)})})
    assert "no explanation does significantly better" in faithful.text


@pytest.mark.parametrize(("corpus", "human"), [("hatexplain", True), ("planted", False), ("mine.jsonl", False)])
def test_rationales_are_called_human_only_where_people_marked_them(corpus, human):
    scores = {"ah": (0.5, 0.01), "random": (0.1, 0.01)}
    assert ("human" in findings({"": rationales(scores, corpus)})[0].text) == human


def test_geometry_and_convexity(results):
    sim = results["geometry"].data["state_sim"].sel(stack="encoder").values
    found = said(results, "geometry", "top")
    assert (found.numbers["first"], found.numbers["last"], found.numbers["top"]) == (sim[0], sim[-1], 3)
    assert found.numbers["where"] == int(np.argmax(sim))
    keys = results["geometry"].data["sim_all"].sel(stack="encoder", vectors="key").values
    found = said(results, "geometry", "key_mean")
    assert found.numbers["key_mean"] == pytest.approx(keys.mean())
    assert found.numbers["key_layer"] == int(np.argmax(keys)) + 1
    distance = numbers(results, "convexity", "distance")
    found = said(results, "convexity", "near")
    assert found.numbers["near"] == sum(value < 0.5 for value in distance.values())
    assert found.numbers["used"] == pytest.approx(np.mean(list(numbers(results, "convexity", "used").values())))


def test_cones_and_probes(results):
    data = results["cones"].data
    found = said(results, "cones", "cosine")
    assert found.numbers["mean"] == pytest.approx(np.nanmean(data["auroc"].values))
    assert found.numbers["cosine"] == pytest.approx(data["class_cosine"].values[0, 1])
    accuracy = results["probes"].data["accuracy"].sel(probe="linear").values
    found = said(results, "probes", "probe")
    assert found.numbers["accuracy"] == accuracy.max()
    assert found.numbers["state"] == int(np.argmax(accuracy))
    assert found.numbers["majority"] == results["probes"].data["majority"].item()
    data = results["probes"].data.copy(deep=True)
    assert (data["converged"] == 1).all()
    data["converged"][1] = 0
    short = said({"probes": Result("probes", data, results["probes"].provenance)}, "probes", "short")
    assert (short.numbers["short"], short.numbers["states"]) == (1, data.sizes["state"])


def test_what_could_go(results):
    change = numbers(results, "importance", "loss_change", ablation="mean")
    error = numbers(results, "importance", "loss_change_se", ablation="mean")
    texts = numbers(results, "importance", "loss_change_count", ablation="mean")
    p = {place: 2 * t.sf(abs(change[place]) / error[place], texts[place] - 1) for place in change}
    ordered = sorted(p, key=p.get)
    rejected = max((k for k, place in enumerate(ordered, 1) if p[place] <= 0.05 * k / len(p)), default=0)
    free = [place for place in change if place not in ordered[:rejected] or change[place] < 0]
    needed, *found = findings({"importance": results["importance"]})
    assert needed.numbers["count"] == len(change) - len(free)
    if free:
        assert found[0].numbers["count"] == len(free)
        need = numbers(results, "importance", "sensitivity")
        layer, head = min(free, key=lambda place: need[place])
        assert found[0].numbers["named"].startswith(f"{layer}.{head}")
    order = next(figure for figure in figures_of(results["importance"]) if figure.name == "order")
    assert order.data["need"].tolist() == sorted(numbers(results, "importance", "sensitivity").values())


def test_alignment():
    results = lo.look(marian(), EXAMPLES, ["alignment"], progress=False)
    found = said(results, "alignment", "norms_head")
    aer = results["alignment"].data["aer"].sel(stack="cross")
    for measure in ("weights", "norms"):
        assert found.numbers[measure] == np.nanmin(aer.sel(measure=measure).values)
