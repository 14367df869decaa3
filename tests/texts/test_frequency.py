import pytest

from lorgnette.errors import UserError
from lorgnette.texts.frequency import bert_ranks, counted, wordfreq_ranks


def test_equal_counts_share_a_rank_and_the_unseen_come_last():
    ranks = counted({"a": 5, "b": 3, "c": 3, "d": 1}, "here")
    assert [ranks[word] for word in "abcdx"] == [1, 2, 2, 4, 5]
    assert "a" in ranks
    assert "x" not in ranks
    assert len(ranks) == 4


def test_bert_file(tmp_path, monkeypatch):
    path = tmp_path / "ranks.txt"
    path.write_text("1 100 1996\n2 50 1012\n")
    ranks = bert_ranks(path)
    assert (ranks[1996], ranks[1012], ranks[7]) == (1, 2, 3)
    path.write_text("1 100\n")
    with pytest.raises(UserError, match="line 1: '1 100'; expected rank, count"):
        bert_ranks(path)
    with pytest.raises(UserError, match="no file"):
        bert_ranks(tmp_path)
    monkeypatch.delenv("LORGNETTE_DATA", raising=False)
    with pytest.raises(UserError, match="LORGNETTE_DATA"):
        bert_ranks()


def test_real_bert_ranks(data):
    ranks = bert_ranks(data)
    assert (len(ranks), ranks[1996], ranks[1012], ranks.last) == (29109, 1, 2, 29086)


def test_wordfreq():
    ranks = wordfreq_ranks("en", limit=50_000)
    assert ranks["the"] == 1
    assert ranks["the"] < ranks["house"] < ranks["ottoman"] <= ranks.last < ranks["zzxxqq"]
    with pytest.raises(UserError, match="no language 'klingon'"):
        wordfreq_ranks("klingon")
