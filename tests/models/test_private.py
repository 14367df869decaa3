"""The private names of transformers that we depend on are there; whatever vanishes is named here first."""

import re
from pathlib import Path

import transformers
from transformers.utils import output_capturing

from lorgnette.models import private

HOLDERS = {
    private.ATTENTION: lambda: transformers.BertConfig(),
    private.MAPPING: lambda: transformers.AutoModel,
    private.RECORDED: lambda: transformers.BertModel,
    private.REGISTRY: lambda: output_capturing,
}


def test_none_has_vanished():
    gone = [name for name, holder in HOLDERS.items() if not hasattr(holder(), name)]
    assert not gone, (
        f"transformers {transformers.__version__} has no {', '.join(gone)}: see lorgnette/models/private.py"
    )


def test_they_do_what_they_are_used_for():
    config = transformers.BertConfig()
    private.name_attention(config, "eager")
    assert config._attn_implementation == private.attention_name(config) == "eager"
    assert private.known_models(transformers.AutoModel, transformers.BertConfig) is transformers.BertModel

    class Smaller(transformers.BertModel):
        pass

    private.record_as(Smaller, transformers.BertModel)
    registry = getattr(output_capturing, private.REGISTRY)
    assert registry.pop(str(Smaller)) is getattr(transformers.BertModel, private.RECORDED)


def test_they_are_named_in_one_module_alone():
    package = Path(private.__file__).parents[1]
    names = re.compile("|".join([*HOLDERS, r"(?<!set)_attn_implementation\b"]))
    found = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if names.search(path.read_text())}
    assert found == {"models/private.py"}
