from lorgnette.errors import CaptureError, UserError, near


def test_near_suggests_the_closest_name_or_nothing():
    assert near("imbd", ["sst2", "imdb"]) == " Did you mean 'imdb'?"
    assert near("IMDB", ["imdb"]) == " Did you mean 'imdb'?"
    assert near("zebra", ["imdb", "sst2"]) == ""
    assert near("", []) == ""


def test_a_capture_error_is_the_users():
    assert issubclass(CaptureError, UserError)
