"""Model folders: every value of every JSON file, the header and the numbers of the weights, files that are missing."""

import json
import struct
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from safetensors.torch import load, save

from fuzz.damage import damaged_bytes, damaged_json, document, values
from fuzz.place import MODELS, Place, content
from fuzz.trial import Answer, Case, difference, numbers

WEIGHTS = "model.safetensors"
DESCRIBING = ("config.json", "tokenizer.json", "tokenizer_config.json")
INERT = (
    "transformers_version", "_name_or_path", "architectures", "use_cache", "attention_probs_dropout_prob",
    "hidden_dropout_prob", "classifier_dropout", "initializer_range", "dtype", "torch_dtype", "dropout",
    "resid_pdrop", "embd_pdrop", "attn_pdrop", "summary_first_dropout", "init_std", "layerdrop",
    "num_hidden_layers", "n_layer", "encoder_layers", "decoder_layers", "num_attention_heads", "hidden_size",
    "vocab_size", "intermediate_size", "model_type", "gradient_checkpointing", "bos_token_id",
    "reorder_and_upcast_attn",
)  # fmt: skip
"""Fields of a config that must not change what a finished model computes: another value is one line or nothing."""


def cases(place: Place) -> st.SearchStrategy[Case]:
    one = st.one_of(
        _field(place),
        _field(place),
        _json(place),
        _bytes(place),
        _weights(place),
        _header(place),
        _index(place),
        _missing(place),
    )
    return one


@st.composite
def _command(draw: st.DrawFn, model: str) -> tuple[str, ...]:
    """With the model at @/MODEL."""
    where = f"@/{model}"
    look = ("look", where, "-c", "@/texts.txt", "-l", "weights", "--dtype", "float64")
    trace = ("trace", where, "the cat sat", *(("--target", "le chat") if model == "marian" else ()))
    return draw(st.sampled_from((look, look, look, ("check", where), trace, (*look, "-l", "norms"))))


def _case(
    draw: st.DrawFn, place: Place, model: str, what: str, files: dict[str, bytes | None], judge: Any = None
) -> Case:
    """A copy of the model with other files in it (None: without that one)."""

    def prepare(folder: Path) -> None:
        copied = place.copied(model, folder)
        (folder / "texts.txt").write_text(Path(place.texts).read_text())
        for name, now in files.items():
            (copied / name).unlink(missing_ok=True)
            if now is not None:
                (copied / name).write_bytes(now)

    if judge is None:
        return Case(f"{model}, {what}", draw(_command(model)), prepare=prepare)
    look = ("look", f"@/{model}", "-c", "@/texts.txt", "-l", "weights", "--dtype", "float64")
    return Case(f"{model}, {what}", look, prepare=prepare, judge=judge)


def _same_as_whole(place: Place, model: str) -> Any:
    def judge(answer: Answer, folder: Path) -> str | None:
        import lorgnette as lo

        whole = lo.look(place.subjects[model], lo.corpus(place.texts), ["weights"], batch_tokens=23, progress=False)
        return difference(numbers(answer.results[-1]), numbers(whole))

    return judge


@st.composite
def _field(draw: st.DrawFn, place: Place) -> Case:
    """A field of the config that no number may depend on."""
    model = draw(st.sampled_from(sorted(MODELS)))
    whole = json.loads(content(place.root / model / "config.json"))
    name = draw(st.sampled_from([name for name in INERT if name in whole or name in ("dtype", "torch_dtype")]))
    value = draw(values)
    files = {"config.json": document({**whole, name: value})}
    return _case(draw, place, model, f"{name} is {str(value)[:60]!r}", files, _same_as_whole(place, model))


@st.composite
def _json(draw: st.DrawFn, place: Place) -> Case:
    """Any value of any file that describes the model."""
    model, name = draw(st.sampled_from(sorted(MODELS))), draw(st.sampled_from(DESCRIBING))
    whole = json.loads(content(place.root / model / name))
    said, now = draw(damaged_json(whole))
    return _case(draw, place, model, f"{name}: {said}", {name: document(now)})


@st.composite
def _bytes(draw: st.DrawFn, place: Place) -> Case:
    model, name = draw(st.sampled_from(sorted(MODELS))), draw(st.sampled_from(DESCRIBING))
    now = draw(damaged_bytes(content(place.root / model / name)))
    return _case(draw, place, model, f"bytes of {name}, {len(now)} now", {name: now})


@st.composite
def _header(draw: st.DrawFn, place: Place) -> Case:
    """The header of the weights: what is where. Other values give one line, or the same model."""
    model = draw(st.sampled_from(sorted(MODELS)))
    whole = content(place.root / model / WEIGHTS)
    length = struct.unpack("<Q", whole[:8])[0]
    if draw(st.booleans()):
        said, now = draw(damaged_json(json.loads(whole[8 : 8 + length])))
        header = document(now)
        size = draw(st.sampled_from((len(header), len(header), len(header), 0, 2**63, length)))
        damaged, judge = struct.pack("<Q", size) + header + whole[8 + length :], None
    else:
        said = "bytes of the header"
        damaged, judge = draw(damaged_bytes(whole[: 8 + length])) + whole[8 + length :], None
    return _case(draw, place, model, f"{WEIGHTS}: {said}", {WEIGHTS: damaged}, judge)


@st.composite
def _weights(draw: st.DrawFn, place: Place) -> Case:
    """Numbers of the weights: a file that was cut is one line; other numbers are another model, with another hash."""
    import torch

    model = draw(st.sampled_from(sorted(MODELS)))
    whole = content(place.root / model / WEIGHTS)
    tensors = {name: tensor.clone() for name, tensor in load(whole).items()}
    name = draw(st.sampled_from(sorted(tensors)))
    how = draw(st.sampled_from(("nan", "inf", "shape", "type", "missing", "extra", "cut", "flip", "more")))
    if how in ("nan", "inf"):
        tensors[name].view(-1)[draw(st.integers(0, tensors[name].numel() - 1))] = float(how)
    elif how == "shape":
        tensors[name] = draw(
            st.sampled_from((tensors[name][:-1], tensors[name].unsqueeze(0), tensors[name].flatten()[:1]))
        )
    elif how == "type":
        kinds = (torch.int8, torch.int64, torch.bool, torch.float16, torch.complex64, torch.float8_e4m3fn)
        tensors[name] = tensors[name].to(draw(st.sampled_from(kinds)))
    elif how == "missing":
        del tensors[name]
    elif how == "extra":
        tensors[draw(st.sampled_from((f"{name}.x", "x", name.replace("0", "9"), name.upper())))] = torch.ones(2)
    now = save({key: tensor.contiguous() for key, tensor in tensors.items()}, {"format": "pt"})
    if how == "cut":
        now = now[: draw(st.integers(0, len(now) - 1))]
    elif how == "flip":
        at = draw(st.integers(len(now) // 2, len(now) - 1))
        now = now[:at] + bytes([now[at] ^ (1 << draw(st.integers(0, 7)))]) + now[at + 1 :]
    elif how == "more":
        now += draw(st.binary(min_size=1, max_size=20))

    def judge(answer: Answer, folder: Path) -> str | None:
        banned = how == "inf" and name == "final_logits_bias"  # a word that is never said
        if how in ("cut", "shape", "nan", "inf", "more") and not banned:
            return f"an answer from weights that are damaged ({how})"
        [*_, results] = answer.results
        other = {result.provenance.weights_hash for result in results.values()} != {place.subjects[model].weights_hash}
        return None if other else "other weights under the same hash"

    return _case(draw, place, model, f"{name}: {how}", {WEIGHTS: now}, judge)


@st.composite
def _index(draw: st.DrawFn, place: Place) -> Case:
    """Two shards and an index that does not fit them: one line, or the same model."""
    model = draw(st.sampled_from(sorted(MODELS)))
    tensors = load(content(place.root / model / WEIGHTS))
    names = sorted(tensors)
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    shards = {shard: save({n: tensors[n] for n in part}, {"format": "pt"}) for shard, part in halves.items()}
    weight_map = {name: shard for shard, part in halves.items() for name in part}
    index: Any = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    how = draw(st.sampled_from(("json", "json", "elsewhere", "other", "whole", "lost")))
    if how == "json":
        how, index = draw(damaged_json(index))
    elif how == "elsewhere":
        where = draw(
            st.sampled_from(("../x.safetensors", "/proc/version", "", ".", "config.json", "c.safetensors", "a/b", "\0"))
        )
        weight_map[draw(st.sampled_from(names))] = where
    elif how == "other":
        weight_map[names[0]] = "b.safetensors"
    elif how == "lost":
        del shards["b.safetensors"]
    files = {WEIGHTS: None, f"{WEIGHTS}.index.json": document(index), **shards}
    return _case(draw, place, model, f"index: {how}", files, _same_as_whole(place, model))


@st.composite
def _missing(draw: st.DrawFn, place: Place) -> Case:
    """Files that are not there, empty, of another model, or of another kind."""
    model = draw(st.sampled_from(sorted(MODELS)))
    other = draw(st.sampled_from(sorted(MODELS)))
    there = sorted(path.name for path in (place.root / model).iterdir())
    files: dict[str, bytes | None] = {}
    for name in draw(st.lists(st.sampled_from(there), min_size=1, max_size=2, unique=True)):
        theirs = place.root / other / name
        ways = (None, b"", b"{}", b"[]", b"\0" * 100, content(theirs) if theirs.is_file() else b"null")
        files[name] = draw(st.sampled_from(ways))
    said = {name: None if now is None else now[:12] for name, now in files.items()}
    return _case(draw, place, model, f"files {said} of {other}", files)
