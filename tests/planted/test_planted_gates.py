"""Of eight heads where one carries the class, gates keep that one."""

import pytest
import torch
import torch.nn.functional as F

from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.models.classifier.presets import preset
from lorgnette.models.tapping import tapped
from lorgnette.training.gates.gates import HeadGates, freeze

HEADS, WIDTH, WORDS = 8, 32, 40
YES, NO = 10, 11


def planted(carrier, seed):
    """A bare block: all there is passes through the heads; one reads the class word, the others anything else."""
    torch.manual_seed(seed)
    settings = {"layers": 1, "heads": HEADS, "width": WIDTH, "vocab_size": WORDS, "pooling": "mean"}
    style = {"block": "bare", "transform": "none", "output_projection": True, "freeze_embeddings": False}
    model = SelfAttentionClassifier(preset("tp9-base", **settings, **style))
    dim = WIDTH // HEADS
    with torch.no_grad():
        words = model.embeddings.words.weight
        words.normal_()
        words[:, 0] = 0.0
        words[YES, 0], words[NO, 0] = 4.0, -4.0  # the class lies along one component, which other words lack
        attention = model.encoder.layers[0].attention
        attention.query.weight.mul_(0.1)
        attention.value.bias.zero_()
        attention.value.weight.normal_(std=0.3)
        attention.value.weight[:, 0] = 0.0
        attention.value.weight[carrier * dim] = 0.0
        attention.value.weight[carrier * dim, 0] = 1.0
        attention.output.weight.normal_(std=0.1)
        attention.output.weight[0] = 0.0
        attention.output.weight[0, carrier * dim] = 8.0
        model.classifier.weight.normal_(std=0.1)
        model.classifier.weight[:, 0] = torch.tensor([-3.0, 3.0])
        model.classifier.bias.zero_()
    return model


def texts(seed, count=256, length=8):
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(12, WORDS, (count, length), generator=draw)
    labels = torch.arange(count) % 2
    places = torch.randint(length, (count,), generator=draw)
    ids[torch.arange(count), places] = torch.where(labels == 1, YES, NO)
    return ids, labels


def learnt(model, train="none", steps=250, **options):
    """Gates after training, and the accuracy with them."""
    gates = HeadGates.of(model, **{"weight": 0.05, "warmup": 25, **options})
    freeze(model, gates, train)
    ids, labels = texts(0)
    learning = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [gates.log_alpha], "lr": 0.1}, *([{"params": learning, "lr": 1e-3}] if learning else [])]
    optimizer = torch.optim.Adam(groups)
    gates.train()
    with tapped(model, gates):
        for step in range(steps):
            some = torch.randint(len(ids), (32,), generator=torch.Generator().manual_seed(step))
            loss = F.cross_entropy(model(input_ids=ids[some]).logits, labels[some]) + gates.weight * gates.value
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            gates.advance()
        gates.eval()
        held, classes = texts(99)
        with torch.no_grad():
            right = (model(input_ids=held).logits.argmax(-1) == classes).double().mean().item()
    return gates, right


@pytest.mark.parametrize("seed", range(5))
def test_gates_keep_the_head_that_carries_the_class(seed):
    carrier = (3 * seed + 1) % HEADS
    model = planted(carrier, seed)
    torch.manual_seed(seed)
    gates, right = learnt(model)
    assert list(gates.remaining_heads().values()) == [[carrier]]
    assert right > 0.95


def test_in_the_control_nothing_is_worth_keeping():
    """Without the class word in any head, the penalty closes all of them: none is kept by chance."""
    model = planted(2, 0)
    with torch.no_grad():
        model.encoder.layers[0].attention.output.weight[0] = 0.0
    torch.manual_seed(0)
    gates, right = learnt(model, weight=0.2)
    assert gates.open_heads == 0
    assert right < 0.65


def test_a_wanted_number_of_heads_is_where_the_pressure_ends():
    model = planted(5, 1)
    torch.manual_seed(1)
    gates, _ = learnt(model, weight=0.5, keep=3)
    assert gates.expected_open().item() < 0.5
    assert 5 in next(iter(gates.strongest(3).values()))
    assert gates.open_heads >= 1
