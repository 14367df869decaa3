"""Results keep every number exactly, refuse unsound ones, and are written whole or not at all."""

import json
import os

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import xarray as xr
from hypothesis import given

from lorgnette import results as module
from lorgnette.errors import UserError
from lorgnette.files import written_whole
from lorgnette.results import Result, Results
from lorgnette.results.folder import refuse_other_folder
from lorgnette.results.provenance import Provenance

ORIGIN = Provenance(
    model="minilm",
    model_class="BertModel",
    weights_hash="abc",
    corpus="planted",
    texts=3,
    tokens=17,
    notes=("one", "two"),
)
AXES = {"stack": ["encoder", "cross"], "layer": [1, 2], "head": [1, 2, 3]}


def per_head(**variables: np.ndarray) -> xr.Dataset:
    return xr.Dataset({name: (tuple(AXES), values) for name, values in variables.items()}, AXES)


def simple(lens: str = "weights", value: float = 0.25) -> Result:
    count = np.ones((2, 2, 3), dtype=int)
    return Result(lens, per_head(entropy=np.full((2, 2, 3), value), entropy_count=count), ORIGIN)


@st.composite
def datasets(draw: st.DrawFn) -> xr.Dataset:
    """Any mix of types and shapes; a float variable has some missing cells, with the counts that excuse them."""
    sizes = draw(st.dictionaries(st.sampled_from(["layer", "head", "offset", "label"]), st.integers(0, 3), min_size=1))
    coords = {dim: list(range(size)) for dim, size in sizes.items() if draw(st.booleans())}
    if "label" in coords:
        texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
        coords["label"] = np.array(
            draw(st.lists(texts, min_size=sizes["label"], max_size=sizes["label"], unique=True)), dtype=object
        )
    data = xr.Dataset(coords=coords, attrs={"unit": "nats", "bins": [1, 2.5], "nested": {"deep": None}})
    for index in range(draw(st.integers(1, 4))):
        dims = draw(st.lists(st.sampled_from(sorted(sizes)), unique=True))
        shape = tuple(sizes[dim] for dim in dims)
        dtype = draw(st.sampled_from(["float64", "float32", "int64", "uint8", "bool", "<U5"]))
        elements = {"allow_nan": False, "allow_infinity": False} if dtype.startswith("float") else None
        values = draw(hnp.arrays(dtype, shape, elements=elements))
        attrs = {"description": draw(st.text(max_size=5))}
        if dtype.startswith("float"):
            count = draw(hnp.arrays("int64", shape, elements=st.integers(0, 2)))
            values = np.where(count == 0, np.array(np.nan, dtype), values)
            data[f"x{index}_count"] = (dims, count)
        data[f"x{index}"] = (dims, values, attrs)
    return data


@given(datasets())
def test_json_round_trip_is_exact(data):
    result = Result("any", data, ORIGIN)
    back = Result.from_json(result.to_json())
    assert back == result
    for name, array in result.data.variables.items():
        other = back.data.variables[name]
        assert other.dtype.kind == array.dtype.kind, name
        if array.dtype.kind == "f":
            assert other.dtype == array.dtype
            assert other.values.tobytes() == array.values.tobytes() or np.isnan(array.values).any()
    assert back.to_json() == result.to_json()


@given(datasets())
def test_every_cell_is_in_the_table_once(data):
    table = Result("any", data, ORIGIN).to_dataframe()
    for name, array in data.data_vars.items():
        if array.dtype.kind == "f":
            assert table[name].notna().sum() == np.isfinite(array.values).sum()
            np.testing.assert_array_equal(np.sort(table[name].dropna()), np.sort(array.values[~np.isnan(array.values)]))


def test_missing_is_null_and_numbers_keep_their_bits():
    entropy = np.array([0.1, 1 / 3, np.nan, -0.0, 5e-324, 1.7976931348623157e308] * 2).reshape(2, 2, 3)
    result = Result("weights", per_head(entropy=entropy, count=(~np.isnan(entropy)).astype(int)), ORIGIN)
    document = json.loads(result.to_json(), parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert document["schema"] == 1
    assert document["data"]["variables"]["entropy"]["values"][0][0][2] is None
    assert Result.from_json(result.to_json()).data.entropy.values.tobytes() == entropy.tobytes()


def test_text_may_be_missing_and_is_only_text():
    data = xr.Dataset({"word": ("rank", np.array(["</script>", None, "été\x00"], dtype=object))})
    result = Result("words", data, ORIGIN)
    back = Result.from_json(result.to_json())
    assert back == result
    assert [None if pd.isna(word) else word for word in back.data.word.values] == ["</script>", None, "été\x00"]
    assert "</script>" not in result._repr_html_()
    assert "&lt;/script&gt;" in result._repr_html_()
    with pytest.raises(UserError, match="not text"):
        Result("words", xr.Dataset({"word": ("rank", np.array([{}], dtype=object))}), ORIGIN).to_json()


def test_nan_needs_a_zero_count():
    entropy = np.full((2, 2, 3), 0.5)
    entropy[1, 0, 2] = np.nan
    count = np.ones((2, 2, 3), dtype=int)
    with pytest.raises(UserError, match=r"'weights' gave NaN for 'entropy' at stack=cross, layer=1, head=3, where"):
        Result("weights", per_head(entropy=entropy, entropy_count=count), ORIGIN)
    with pytest.raises(UserError, match=r"no 'entropy_count' says"):
        Result("weights", per_head(entropy=entropy), ORIGIN)
    count[1, 0, 2] = 0
    assert Result("weights", per_head(entropy=entropy, entropy_count=count), ORIGIN).data.entropy.isnull().sum() == 1
    assert Result("weights", per_head(entropy=entropy, count=count), ORIGIN).data.entropy.isnull().sum() == 1


def test_a_count_with_fewer_axes_is_broadcast():
    mass = np.zeros((2, 3))
    mass[1] = np.nan
    data = xr.Dataset({"mass": (("layer", "category"), mass), "count": ("layer", [4, 0])})
    assert Result("weights", data, ORIGIN).data.mass.isnull().sum() == 3
    with pytest.raises(UserError, match="layer=1, category=0"):
        Result("weights", data.assign(count=("layer", [0, 4])), ORIGIN)


def test_a_standard_error_needs_two_texts():
    once = np.ones((2, 2, 3), dtype=int)
    unknown = np.full((2, 2, 3), np.nan)
    Result("weights", per_head(entropy=once / 2, entropy_se=unknown, entropy_count=once), ORIGIN)
    with pytest.raises(UserError, match="entropy_se"):
        Result("weights", per_head(entropy=once / 2, entropy_se=unknown, entropy_count=2 * once), ORIGIN)


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_infinity_is_refused_even_where_the_count_is_zero(bad):
    with pytest.raises(UserError, match="infinite 'entropy' at stack=encoder, layer=1, head=1"):
        Result("weights", per_head(entropy=np.full((2, 2, 3), bad), count=np.zeros((2, 2, 3))), ORIGIN)


def test_attributes_must_be_plain():
    assert simple().data.assign_attrs(pair=(1, 2)).attrs["pair"] == (1, 2)
    assert Result("any", xr.Dataset(attrs={"pair": (1, np.float64(2))}), ORIGIN).data.attrs == {"pair": [1, 2.0]}
    with pytest.raises(UserError, match="finite"):
        Result("any", xr.Dataset(attrs={"bad": float("nan")}), ORIGIN)
    with pytest.raises(UserError, match="object"):
        Result("any", xr.Dataset(attrs={"bad": object()}), ORIGIN)


def test_table_of_one_variable_and_of_different_axes():
    data = per_head(entropy=np.arange(12.0).reshape(2, 2, 3), entropy_count=np.ones((2, 2, 3), dtype=int))
    data["mass"] = (("layer", "category"), np.eye(2))
    data["total"] = 7
    result = Result("weights", data.assign_coords(category=["cls", "sep"]), ORIGIN)
    one = result.to_dataframe("entropy")
    assert list(one.columns) == ["stack", "layer", "head", "entropy", "entropy_count"]
    assert one.query("stack == 'cross' and layer == 2 and head == 3").entropy.item() == 11
    table = result.to_dataframe()
    assert len(table) == 12 + 4 + 1
    assert table.mass.sum() == 2
    assert table.total.dropna().tolist() == [7]
    assert table.entropy_count.dtype == "Int64"
    with pytest.raises(UserError, match="no variable 'entrpy'; it has entropy"):
        result.to_dataframe("entrpy")


def test_save_and_load(tmp_path):
    result = simple()
    assert Result.load(result.save(tmp_path / "deep" / "weights.json")) == result
    assert pd.read_csv(result.save(tmp_path / "weights.csv")).entropy.tolist() == [0.25] * 12
    table = pq.read_table(result.save(tmp_path / "weights.parquet"))
    assert table.to_pandas().entropy.tolist() == [0.25] * 12
    assert json.loads(table.schema.metadata[b"lorgnette"])["provenance"]["model"] == "minilm"
    with pytest.raises(UserError, match=r"must end in \.json, \.csv, \.parquet"):
        result.save(tmp_path / "weights.xlsx")
    with pytest.raises(UserError, match=r"only \.json"):
        Result.load(tmp_path / "weights.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "weights.csv", "weights.parquet"]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "weights.json"
    path.write_text("old")

    def fail(partial):
        partial.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), written_whole(path) as partial:
        fail(partial)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["weights.json"]


@pytest.mark.parametrize(("schema", "age"), [(0, "older"), (2, "newer"), (None, "older")])
def test_other_schema_versions_are_refused(schema, age):
    document = json.loads(simple().to_json()) | {"schema": schema}
    with pytest.raises(UserError, match=f"schema version {schema}, {age}"):
        Result.from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["", "[]", "{}", "not json", '{"format": "lorgnette-result", "schema": 1}'])
def test_what_is_no_result_gets_one_line(text):
    with pytest.raises(UserError) as caught:
        Result.from_json(text)
    assert "\n" not in str(caught.value)


def test_a_damaged_result_gets_one_line():
    document = json.loads(simple().to_json())
    document["data"]["variables"]["entropy"]["values"] = [1, 2]
    with pytest.raises(UserError, match="damaged"):
        Result.from_json(json.dumps(document))
    document = json.loads(simple().to_json())
    document["provenance"]["colour"] = "blue"
    with pytest.raises(UserError, match="unknown fields: colour"):
        Result.from_json(json.dumps(document))


def test_results_folder_round_trip(tmp_path):
    results = Results([simple("weights"), simple("norms", 2.0)])
    folder = results.save(tmp_path / "run")
    back = Results.load(folder)
    assert list(back) == ["weights", "norms"]
    assert dict(back) == dict(results)
    assert back.to_dataframe().groupby("lens").entropy.mean().to_dict() == {"norms": 2.0, "weights": 0.25}
    assert os.listdir(tmp_path) == ["run"]
    with pytest.raises(KeyError, match="There are: weights, norms"):
        back["geometry"]
    with pytest.raises(UserError, match="Two results"):
        Results([simple(), simple()])


def test_saving_again_replaces_our_files_and_keeps_the_others(tmp_path):
    folder = Results([simple("weights"), simple("norms")]).save(tmp_path / "run")
    (folder / "notes.txt").write_text("mine")
    Results([simple("weights", 3.0)]).save(folder)
    assert sorted(os.listdir(folder)) == ["lorgnette.json", "notes.txt", "weights.json"]
    assert Results.load(folder)["weights"].data.entropy.max() == 3
    assert os.listdir(tmp_path) == ["run"]


def test_results_of_other_lenses_are_not_lost(tmp_path):
    folder = Results([simple("weights"), simple("norms")]).save(tmp_path / "run")
    refuse_other_folder(folder, ["norms", "weights", "geometry"])
    with pytest.raises(UserError, match="holds results of norms, which this run would remove"):
        refuse_other_folder(folder, ["weights"])


def test_a_strangers_folder_is_not_touched(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="not a results folder; nothing was written"):
        Results([simple()]).save(tmp_path)
    with pytest.raises(UserError, match="not a results folder"):
        refuse_other_folder(tmp_path, [])
    with pytest.raises(UserError, match="is a file"):
        refuse_other_folder(tmp_path / "thesis.txt", [])
    refuse_other_folder(tmp_path / "new", [])
    assert os.listdir(tmp_path) == ["thesis.txt"]
    with pytest.raises(UserError, match="is a file"):
        Results([simple()]).save(tmp_path / "thesis.txt")
    with pytest.raises(UserError, match="is not a results folder"):
        Results.load(tmp_path)
    with pytest.raises(UserError, match="no results folder"):
        Results.load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert list(Results.load(Results([simple()]).save(tmp_path / "empty"))) == ["weights"]


@pytest.mark.parametrize("exists", [False, True])
def test_an_interrupted_save_leaves_what_was_there(tmp_path, monkeypatch, exists):
    folder = tmp_path / "run"
    if exists:
        Results([simple()]).save(folder)
    calls = iter([simple().to_json()])

    def interrupted(self):
        try:
            return next(calls)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(module.Result, "to_json", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Results([simple("weights", 9.0), simple("norms")]).save(folder)
    assert os.listdir(tmp_path) == (["run"] if exists else [])
    if exists:
        assert Results.load(folder)["weights"] == simple()


@pytest.mark.parametrize("name", ["../evil", "a/b", "", ".hidden", "lorgnette", "a b"])
def test_a_name_is_never_a_path(tmp_path, name):
    with pytest.raises(UserError, match="cannot name a result"):
        Results({name: simple()}).save(tmp_path / "run")
    folder = Results([simple()]).save(tmp_path / "run")
    index = folder / "lorgnette.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"results": [name]}))
    with pytest.raises(UserError, match="cannot name a result"):
        Results.load(folder)


def test_provenance_notes_and_versions():
    assert ORIGIN.noted("two", "three").notes == ("one", "two", "three")
    assert ORIGIN.versions["torch"].startswith("2")
    assert Provenance.from_dict(json.loads(json.dumps(ORIGIN.to_dict()))) == ORIGIN
    with pytest.raises(UserError, match="name a model"):
        Provenance.from_dict({})


def test_repr_is_short():
    assert repr(simple()) == ("Result('weights': entropy | stack 2 × layer 2 × head 3 | minilm on planted)")
    assert repr(Results([simple()])) == "Results(weights)"
    assert "<table>" in Results([simple()])._repr_html_()
