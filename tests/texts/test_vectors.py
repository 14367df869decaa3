import gzip
import lzma

import numpy as np
import pytest

from lorgnette.errors import UserError
from lorgnette.texts.vectors import read_vectors

GLOVE = "the 1 2.5 -3e-1\ncafé 0 0 1\n. 1 1 1\n"


def test_glove_text_plain_and_compressed(tmp_path):
    (tmp_path / "g.txt").write_text(GLOVE, encoding="utf-8")
    (tmp_path / "g.txt.gz").write_bytes(gzip.compress(GLOVE.encode()))
    for name in ("g.txt", "g.txt.gz"):
        words, vectors = read_vectors(tmp_path / name)
        assert words == ["the", "café", "."]
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, [[1, 2.5, -0.3], [0, 0, 1], [1, 1, 1]], rtol=1e-6)
    assert read_vectors(tmp_path / "g.txt", limit=1)[0] == ["the"]


def test_word2vec_header_and_words_with_blanks(tmp_path):
    path = tmp_path / "g.vec"
    path.write_text("2 3\nb 4 5 6\nat x@y.z 1 2 3\n")
    words, vectors = read_vectors(path)
    assert words == ["b", "at x@y.z"]
    assert vectors.tolist() == [[4, 5, 6], [1, 2, 3]]


def test_an_array_with_its_vocabulary(tmp_path):
    array = np.arange(6, dtype=np.float16).reshape(3, 2)
    with lzma.open(tmp_path / "v.npy.xz", "wb") as file:
        np.save(file, array)
    (tmp_path / "vocab.txt").write_text("a\nb\nc\n")
    for path in (tmp_path, tmp_path / "v.npy.xz"):
        words, vectors = read_vectors(path)
        assert (words, vectors.tolist(), vectors.dtype) == (["a", "b", "c"], array.tolist(), np.float32)
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(UserError, match=r"shape \(3, 2\) for the 2 words"):
        read_vectors(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a 1 2 3\nb 1 2\n", "line 2: 2 numbers after the word; expected 3"),
        ("a 1 2 3\nb 1 2 3 4\n", "line 2: 4 numbers after the word; expected 3"),
        ("a 1 2 3\nb 1 x 3\n", "line 2: could not convert"),
        ("a 1 nan 3\n", "line 1: a number that is not finite"),
        ("", "empty"),
    ],
)
def test_damaged_lines_are_named(tmp_path, content, message):
    (tmp_path / "g.txt").write_text(content)
    with pytest.raises(UserError, match=message):
        read_vectors(tmp_path / "g.txt")


def test_a_folder_without_vectors(tmp_path):
    with pytest.raises(UserError, match="no vectors"):
        read_vectors(tmp_path)


def test_the_real_glove(data):
    words, vectors = read_vectors(data / "glove_100d", limit=5000)
    assert vectors.shape == (5000, 100)
    np.testing.assert_allclose(vectors[words.index("the")][:3], [-0.038194, -0.24487, 0.72812], atol=1e-3)
