"""Errors that say what to do."""

import pytest

from lorgnette.errors import UserError, optional


def test_a_missing_extra_is_one_line_that_says_what_to_install():
    with pytest.raises(UserError, match=r"'no_such_package'.*pip install 'lorgnette\[serve\]'"):
        optional("no_such_package.inside", "serve")


def test_a_package_that_is_there_is_imported():
    assert optional("json.decoder", "serve").JSONDecoder


def test_a_package_that_lacks_something_itself_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        optional("broken_package", "serve")
