"""Gold alignments in the usual formats."""

import pytest

from lorgnette.errors import UserError
from lorgnette.texts.alignments import Links, given_alignments, hansards, links_from, pharaoh, read_alignments


def test_naacl_counts_from_one_and_zero_is_no_word(tmp_path):
    path = tmp_path / "gold.wa"
    path.write_text("0001 1 1 S\n0001 2 3 P\n0001 0 2 S\n2 4 4\n2 1 2 P 0.5\n")
    assert read_alignments(path) == {
        "1": Links.of([(0, 0)], [(1, 2)]),
        "2": Links.of([(3, 3)], [(0, 1)]),
    }


def test_pharaoh_a_sentence_a_line(tmp_path):
    path = tmp_path / "gold.align"
    path.write_text("0-0 1-2 2?3\n\n3p1 0-1p\n")
    gold = read_alignments(path)
    assert gold["1"] == Links.of([(0, 0), (1, 2)], [(2, 3)])
    assert gold["2"] == Links.of([])
    assert gold["3"] == Links.of([], [(3, 1), (0, 1)])
    assert gold["1"].sure <= gold["1"].possible


def test_words_counted_from_one(tmp_path):
    path = tmp_path / "gold.talp"
    path.write_text("1-1 2p3\n")
    assert read_alignments(path, first=1)["1"] == Links.of([(0, 0)], [(1, 2)])
    with pytest.raises(UserError, match=r"'0-1' is not a link \(words are counted from 1\)"):
        pharaoh("0-1", where="here", first=1)


def test_what_a_user_may_hold():
    expected = Links.of([(0, 1)], [(2, 2)])
    assert links_from("0-1 2?2", "x") == expected
    assert links_from(([(0, 1)], [(2, 2)]), "x") == expected
    assert links_from(([[0, 1]], [[2, 2]]), "x") == expected  # as JSON gives it
    assert given_alignments({"a": expected}) == {"a": expected}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n\n", "no links; expected lines such as"),
        ("1 1 1 S\n1 one 1 S\n", "line 2: '1 one 1 S'; expected 'sentence source target S'"),
        ("0-0 1:2\n", "line 1: '1:2' is not a link"),
    ],
)
def test_other_lines_are_one_clear_line(tmp_path, text, message):
    path = tmp_path / "gold.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        read_alignments(path)
    assert "\n" not in str(caught.value)


def test_no_pairs():
    with pytest.raises(UserError, match=r"text 'x': the alignment is '7'; expected \(sure, possible\)"):
        links_from(7, "text 'x'")


def test_sentence_pairs_with_their_links(tmp_path):
    pairs, gold = tmp_path / "pairs", tmp_path / "gold"
    pairs.write_text("a  b ||| c d \n  e ||| f\n")
    gold.write_text("1-1 2p1\n1-1\n")
    first, second = hansards(pairs, gold)
    assert (first.id, first.text, first.target) == ("1", "a b", "c d")
    assert first.extra["alignment"] == Links.of([(0, 0)], [(1, 0)])
    assert (second.text, second.target) == ("e", "f")
    gold.write_text("1-1\n")
    with pytest.raises(UserError, match="not the same number of lines"):
        list(hansards(pairs, gold))
    pairs.write_text("a b\n")
    with pytest.raises(UserError, match=r"line 1: 'a b\\n'; expected 'source \|\|\| target'"):
        list(hansards(pairs, gold))
