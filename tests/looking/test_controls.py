"""Random weights as a control."""

from tiny import bert

from lorgnette.looking.controls import with_random_weights


def test_random_weights_are_seeded_and_random():
    subject = bert()
    one, same, other = (with_random_weights(subject, seed) for seed in (0, 0, 1))
    assert one.weights_hash == same.weights_hash
    assert len({subject.weights_hash, one.weights_hash, other.weights_hash}) == 3
    assert one.name.endswith("random weights")
