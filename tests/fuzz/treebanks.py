"""CoNLL-U: the same sentences written in other ways, and damaged columns, rows and bytes."""

from pathlib import Path

from hypothesis import strategies as st

from fuzz.damage import HOSTILE, damaged_bytes
from fuzz.place import WORD, Place
from fuzz.trial import Answer, Case, difference, numbers

Rows = list[list[str]]
LENSES = ("weights", "relations", "trees", "roles", "coreference", "distances")
RELATIONS = ("det", "nsubj", "obj", "amod", "punct", "nsubj:pass", "root")
UNUSED = (2, 8)
"""Lemma and enhanced graph: no lens of those above reads them."""


@st.composite
def sentences(draw: st.DrawFn) -> list[Rows]:
    out = []
    for _ in range(draw(st.integers(1, 3))):
        words = draw(st.lists(st.sampled_from(WORD), min_size=1, max_size=6))
        root = draw(st.integers(1, len(words)))
        rows = []
        for number, word in enumerate(words, 1):
            # a word hangs on its neighbour on the way to the root: always a tree
            head = 0 if number == root else number + 1 if number < root else number - 1
            relation = "root" if head == 0 else draw(st.sampled_from(RELATIONS[:-1]))
            rows.append([str(number), word, word, "NOUN", "NN", "_", str(head), relation, "_", "_"])
        out.append(rows)
    return out


def text_of(blocks: list[Rows], heads: list[str] | None = None, end: str = "\n") -> str:
    """Each sentence has an id of its own: by it samples are drawn and orders made."""
    comments = heads or [""] * len(blocks)
    return "".join(
        f"# sent_id = s{number}{end}" + comment + "".join("\t".join(row) + end for row in rows) + end
        for number, (comment, rows) in enumerate(zip(comments, blocks, strict=True))
    )


def cases(place: Place) -> st.SearchStrategy[Case]:
    return st.one_of(_the_same(place), _cells(place), _cells(place), _cells(place), _rows(place), _bytes(place))


def _look(place: Place, lens: str) -> tuple[str, ...]:
    return ("look", place.model(), "-c", "@/trees.conllu", "--dtype", "float64", "-l", lens)


@st.composite
def _command(draw: st.DrawFn, place: Place) -> tuple[str, ...]:
    if draw(st.integers(0, 5)):
        return _look(place, draw(st.sampled_from(LENSES)))
    head = draw(st.sampled_from(("1.1", "2", "0", "9.9", "1.", "x", "1" * 30)))
    more = draw(
        st.sampled_from(((), ("--norms",), ("--free-root",), ("--transpose",), ("--sentence", "x"), ("--json",)))
    )
    return ("induced", place.model(), "-c", "@/trees.conllu", "--dtype", "float64", "--head", head, *more)


def _answer_of(place: Place, folder: Path, content: str, lens: str) -> dict[str, object]:
    import lorgnette as lo

    (folder / "other").mkdir(exist_ok=True)
    (folder / "other/trees.conllu").write_text(content)
    corpus = lo.corpus(folder / "other/trees.conllu")
    return numbers(lo.look(place.subjects["bert"], corpus, [lens], batch_tokens=11, progress=False))


@st.composite
def _the_same(draw: st.DrawFn, place: Place) -> Case:
    """Comments, multiword tokens, empty nodes, line ends and blank lines change nothing."""
    blocks, lens = draw(sentences()), draw(st.sampled_from(LENSES))
    dressed = []
    for rows in blocks:
        rows = [list(row) for row in rows]
        if draw(st.booleans()) and len(rows) > 1:
            rows.insert(0, ["1-2", "x", *["_"] * 8])
        if draw(st.booleans()):
            at = draw(st.integers(0, len(rows)))
            before = rows[at - 1][0] if at else "0"
            if "-" not in before:
                rows.insert(at, [f"{before}.1", "y", *["_"] * 8])
        dressed.append(rows)
    comments = draw(st.sampled_from(("", "# a comment\n", "# newpar\n# x = y\n")))
    end = draw(st.sampled_from(("\n", "\r\n")))
    content = text_of(dressed, [comments.replace("\n", end)] * len(dressed), end)
    content = draw(st.sampled_from((content, content.rstrip() + end, content.rstrip(), end * 2 + content + end)))

    def judge(answer: Answer, folder: Path) -> str | None:
        return difference(numbers(answer.results[-1]), _answer_of(place, folder, text_of(blocks), lens))

    return Case(f"dressed {content!r}", _look(place, lens), {"trees.conllu": content.encode()}, judge=judge)


CELLS = (
    "", " ", "_", "0", "-1", "1", "2", "99", "1-2", "2-1", "1.1", "x", "1" * 5000, "é", "\u2028", "a|b", "A=B|A=B",
    "(e1", "Entity=(e1", "Entity=e1)", "1:x", "|", "=", "#", "a b",
    *(v for v in HOSTILE if isinstance(v, str) and v.isprintable()),
)  # fmt: skip


@st.composite
def _cells(draw: st.DrawFn, place: Place) -> Case:
    """A hostile cell: one line, or a sentence that is left out and named, or a column that no lens reads."""
    blocks, lens = draw(sentences()), draw(st.sampled_from(LENSES))
    sentence = draw(st.integers(0, len(blocks) - 1))
    row, column = draw(st.integers(0, len(blocks[sentence]) - 1)), draw(st.integers(0, 9))
    value = draw(st.sampled_from(CELLS))
    now = [[list(cells) for cells in rows] for rows in blocks]
    now[sentence][row][column] = value
    heads = [
        draw(st.sampled_from(("", "", "# global.Entity = eid-etype-head-other\n", "# sent_id = a\n", "# text = \n")))
    ]
    content = text_of(now, heads + [""] * (len(now) - 1))

    def judge(answer: Answer, folder: Path) -> str | None:
        if column not in (*UNUSED, 0) or value == blocks[sentence][row][0]:
            return None
        found = numbers(answer.results[-1])
        if column in UNUSED:
            return difference(found, _answer_of(place, folder, text_of(blocks, heads + [""] * (len(now) - 1)), lens))
        if "-" in value or "." in value:
            return None  # now another kind of token
        notes = [note for result in answer.results[-1].values() for note in result.provenance.notes]
        return None if any("were skipped" in note for note in notes) else "a sentence without a word went in"

    what = f"column {column + 1} of word {row + 1} is {value[:40]!r} in {content[:400]!r}"
    return Case(what, _look(place, lens), {"trees.conllu": content.encode("utf-8", "replace")}, judge=judge)


@st.composite
def _rows(draw: st.DrawFn, place: Place) -> Case:
    """Rows that are missing, doubled, exchanged, cut, or of another file."""
    lines = text_of(draw(sentences())).split("\n")
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        how = draw(st.sampled_from(("remove", "double", "swap", "cut", "insert", "blank")))
        if how == "remove":
            del lines[at]
        elif how == "double":
            lines.insert(at, lines[at])
        elif how == "swap":
            lines[at], lines[0] = lines[0], lines[at]
        elif how == "cut":
            lines[at] = lines[at][: draw(st.integers(0, 12))]
        elif how == "insert":
            lines.insert(
                at,
                draw(
                    st.sampled_from(("a text", "# ", "#", "# sent_id", "# = x", "1\tx", "\t" * 9, "a" * 3000, "\ufeff"))
                ),
            )
        else:
            lines.insert(at, " ")
        lines = lines or [""]
    content = "\n".join(lines)
    return Case(f"rows {content[:400]!r}", draw(_command(place)), {"trees.conllu": content.encode()})


@st.composite
def _bytes(draw: st.DrawFn, place: Place) -> Case:
    content = draw(damaged_bytes(text_of(draw(sentences())).encode()))
    return Case(f"bytes {content[:400]!r}", draw(_command(place)), {"trees.conllu": content})
