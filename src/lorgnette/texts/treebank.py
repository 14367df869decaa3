"""CoNLL-U treebanks (Universal Dependencies)."""

import re
from collections.abc import Iterator, Mapping, Sequence

from lorgnette.errors import UserError, optional, outside
from lorgnette.texts.corpus import Corpus, Skipped
from lorgnette.texts.example import Example
from lorgnette.texts.files import File, content, existing, lines, refuse_long
from lorgnette.types import Json

Span = tuple[int, int, str]  # first word, word after the last, type


def treebank_corpus(path: str | File, *, name: str | None = None, split: str | None = None) -> Corpus:
    """The sentences of a CoNLL-U file, with words, gold tree and tags (upos, xpos, feats, lemma; entity where marked).

    The words are the syntactic words (integer ids): a multiword token such as French "du" appears as its parts "de le",
    empty nodes not at all, and `text` is the raw sentence. A sentence whose heads are no tree (a cycle, two roots, a
    head that is not there) is left out and counted in `corpus.skipped`.
    """
    file = existing(path)
    skipped = Skipped()
    return Corpus(
        name or file.name, lambda: _sentences(file, skipped), split=split, source=lambda: content(file), skipped=skipped
    )


def is_tree(heads: Sequence[int]) -> bool:
    """Whether 1-based heads (0 = root) form one tree: exactly one root, every head there, every word under the root."""
    if list(heads).count(0) != 1 or not all(0 <= head <= len(heads) for head in heads):
        return False
    state = [0] * (len(heads) + 1)  # 0 not seen, 1 on the path being followed, 2 known to reach the root
    state[0] = 2
    for word in range(1, len(heads) + 1):
        path = []
        while state[word] == 0:
            state[word] = 1
            path.append(word)
            word = heads[word - 1]
        if state[word] == 1:
            return False
        for passed in path:
            state[passed] = 2
    return True


def _sentences(path: File, skipped: Skipped) -> Iterator[Example]:
    skipped.clear()
    document, entity_format = None, None
    any_yet = False
    for start, block in _blocks(path):
        any_yet = True
        words, metadata = _parsed(block, path, start)
        document = metadata.get("newdoc id", document)
        entity_format = metadata.get("global.Entity", entity_format)
        if not words:
            continue
        id = metadata.get("sent_id") or f"line {start}"
        heads = [word["head"] for word in words]
        annotated = any(head is not None for head in heads)
        numbered = [word["id"] for word in words] == list(range(1, len(words) + 1))
        if not numbered or (annotated and (None in heads or not is_tree(heads))):
            skipped.add(id)
            continue
        yield _example(id, words, metadata, document, entity_format)
    if not any_yet:
        raise UserError(
            f"{path}: no sentence; expected CoNLL-U (ten tab-separated columns, a blank line after each sentence)."
        )


def _blocks(path: File) -> Iterator[tuple[int, str]]:
    """Sentences as text, with the number of their first line."""
    start, length = 0, 0
    held: list[str] = []
    for number, line in lines(path):
        if line.strip():
            start, length = start or number, length + len(line)
            refuse_long(length, f"{path}: the sentence at line {start}")
            held.append(line.rstrip("\r\n"))
        elif held:
            yield start, "\n".join(held) + "\n"
            start, length, held = 0, 0, []
    if held:
        yield start, "\n".join(held) + "\n"


def _parsed(block: str, path: File, start: int) -> tuple[list[Json], Mapping[str, str | None]]:
    """The words (integer ids only) and the comments of one sentence."""
    conllu = optional("conllu", "syntax")

    # Features and miscellany stay as written: a tag is compared, not taken apart.
    raw = dict.fromkeys(("feats", "deps", "misc"), lambda fields, index: fields[index])
    for number, line in enumerate(block.rstrip("\n").split("\n"), start):
        if not line.startswith("#") and line.count("\t") != 9:
            width = line.count("\t") + 1
            raise UserError(f"{path}, line {number}: {width} columns; CoNLL-U has ten, separated by tabs.")
        if not line.startswith("#") and not all(field.strip() for field in line.split("\t")):
            raise UserError(f"{path}, line {number}: an empty column; CoNLL-U writes _ where there is nothing.")
        if line.startswith("#") and line.count("\t") == 9:  # which the parser takes for a comment
            raise UserError(
                f"{path}, line {number}: a word behind a #. Delete the line, or write the word's number in the first "
                "column."
            )
        if line.startswith("_\t"):  # which the parser takes for a line without a word
            raise UserError(f"{path}, line {number}: the first column is _; CoNLL-U has the word's number there.")
    with outside(f"{path}, the sentence at line {start}: not CoNLL-U", "Correct it, or leave it out."):
        [sentence] = conllu.parse(block, fields=conllu.parser.DEFAULT_FIELDS, field_parsers=raw)
    return [dict(word) for word in sentence if isinstance(word["id"], int)], sentence.metadata


def _example(
    id: str,
    words: list[Json],
    metadata: Mapping[str, str | None],
    document: str | None,
    entity_format: str | None,
) -> Example:
    forms = tuple(word["form"] for word in words)
    tags = {name: tuple(str(word[name] or "_") for word in words) for name in ("upos", "xpos", "feats", "lemma")}
    misc = tuple(word["misc"] or "_" for word in words)
    extra: Json = {"misc": misc}
    if document is not None:
        extra["document"] = document
    if entity_format is not None:
        spans = entity_spans(misc, entity_format)
        extra["entities"] = spans
        tags["entity"] = outermost(spans, len(words))
    tree = words[0]["head"] is not None
    return Example(
        id=id,
        text=metadata.get("text") or " ".join(forms),
        words=forms,
        heads=tuple(word["head"] for word in words) if tree else None,
        relations=tuple(word["deprel"] for word in words) if tree else None,
        tags=tags,
        extra=extra,
    )


def entity_spans(misc: Sequence[str], entity_format: str = "GRP-etype") -> tuple[Span, ...]:
    """The typed spans, nested ones too, that the `Entity=` brackets of a CoNLL-U miscellany column mark.

    `entity_format` is the file's `global.Entity` declaration, which says where the type stands. A bracket without its
    counterpart (an entity that goes on in another sentence) ends with the sentence.
    """
    fields = entity_format.split("-")
    place = fields.index("etype") if "etype" in fields else len(fields)
    spans: list[Span] = []
    open_: list[tuple[str, int, str]] = []
    for index, column in enumerate(misc):
        value = next((item.removeprefix("Entity=") for item in column.split("|") if item.startswith("Entity=")), "")
        for start, end, alone in re.findall(r"\(([^()]+)(\)?)|([^()]+)\)", value):
            parts = (start or alone).split("-")
            kind = parts[place] if place < len(parts) else "_"  # not declared, or left out here
            if start and end:
                spans.append((index, index + 1, kind))
            elif start:
                open_.append((parts[0], index, kind))
            else:
                at = next((i for i in reversed(range(len(open_))) if open_[i][0] == parts[0]), None)
                if at is not None:
                    _, first, kind = open_.pop(at)
                    spans.append((first, index + 1, kind))
    spans.extend((first, len(misc), kind) for _, first, kind in open_)
    return tuple(sorted(spans, key=lambda span: (span[0], -span[1])))


def outermost(spans: Sequence[Span], length: int) -> tuple[str, ...]:
    """IOB2 tags of the outermost spans (nested ones would break the scheme)."""
    tags = ["O"] * length
    free = 0
    for first, end, kind in sorted(spans, key=lambda span: (span[0], -span[1])):
        if first >= free:
            tags[first:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - first - 1)
            free = end
    return tuple(tags)
