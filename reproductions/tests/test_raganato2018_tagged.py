"""Words with one tag each."""

import pytest

from lorgnette.errors import UserError
from reproductions.raganato2018.tagged import tagged_corpus


def test_sentences_between_empty_lines(tmp_path):
    path = tmp_path / "sem.txt"
    path.write_text("# a comment\nThe\tDEF\ncat\tCON\n\n\n#\tNIL\nruns\tENS\n")
    first, second = tagged_corpus(path)
    assert (first.id, first.words, first.tags) == ("2", ("The", "cat"), {"sem": ("DEF", "CON")})
    assert (second.id, second.text, second.tags["sem"]) == ("6", "# runs", ("NIL", "ENS"))


def test_columns_the_other_way_round(tmp_path):
    path = tmp_path / "sem.txt"
    path.write_text("DEF\tThe\n")
    [only] = tagged_corpus(path, label="tag", word=1, tag=0)
    assert (only.words, only.tags) == (("The",), {"tag": ("DEF",)})


@pytest.mark.parametrize("line", ["word", "word\t", "\tTAG", "word TAG"])
def test_a_line_without_a_tag(tmp_path, line):
    path = tmp_path / "sem.txt"
    path.write_text(f"The\tDEF\n{line}\n")
    with pytest.raises(UserError, match=r"line 2: .* expected a word in column 1 and its tag in column 2"):
        list(tagged_corpus(path))
