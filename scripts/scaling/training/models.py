"""The models that the scaling report trains, and made-up data that each can learn; runs on the nodes, needs PyTorch."""

# SPDX-License-Identifier: Apache-2.0

import importlib.util
import sys
from pathlib import Path

import torch
from torch import nn

CLASSES = 10
BATCHES = 4  # of a rank, used in turn: the loss of a batch can be compared with its own some rounds later

# On a CPU: a step of some 10 ms on one core. "cuda" gives a data-centre GPU something to do.
SHAPES = {
    "cpu": {"mlp": {"width": 256, "batch": 32}, "cnn": {"width": 16, "side": 24, "batch": 16},
            "rnn": {"width": 64, "length": 16, "batch": 16}, "resnet50": {"width": 8, "side": 32, "batch": 4}},
    "cuda": {"mlp": {"width": 4096, "batch": 256}, "cnn": {"width": 64, "side": 64, "batch": 256},
             "rnn": {"width": 1024, "length": 128, "batch": 128}, "resnet50": {"width": 64, "side": 224, "batch": 32}},
}
FEATURES = 64  # numbers in a sample of mlp, and in one time step of rnn


class Last(nn.Module):
    """The last output of an LSTM, which is classified."""

    def forward(self, outputs_and_state):
        return outputs_and_state[0][:, -1]


def load_resnet50():
    """The architecture is that of the example users start by themselves, so that both measure the same network."""
    path = Path(__file__).resolve().parents[3] / "etc" / "examples" / "bench_synthetic.py"
    if not path.exists():
        sys.exit(f"resnet50 is built by etc/examples/bench_synthetic.py, which is not at {path}; use a whole checkout")
    specification = importlib.util.spec_from_file_location("bench_synthetic", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.resnet50


def convolutional(width):
    layers, channels = [], 3
    for outputs in (width, 2 * width, 4 * width):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
        channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels, CLASSES))


def build(name, device):
    """The model; the same parameters on every rank, since all have the same seed."""
    torch.manual_seed(1)
    shape = SHAPES[device][name]
    if name == "mlp":
        widths = (FEATURES, *[shape["width"]] * 3)
        layers = [layer for pair in zip(widths, widths[1:]) for layer in (nn.Linear(*pair), nn.ReLU())]
        return nn.Sequential(*layers, nn.Linear(widths[-1], CLASSES))
    if name == "cnn":
        return convolutional(shape["width"])
    if name == "rnn":
        return nn.Sequential(nn.LSTM(FEATURES, shape["width"], batch_first=True), Last(), nn.Linear(shape["width"], CLASSES))
    return load_resnet50()(shape["width"], 1000 if device == "cuda" else CLASSES)  # the real one has 1000 classes


def make_batches(name, device, samples, rank):
    """Each class is a pattern and its samples are that pattern under noise; patterns are the same on every rank, the
    samples are the rank's own, so that ranks which do not exchange gradients end with different parameters."""
    of_model = SHAPES[device][name]
    shape = {"mlp": (FEATURES,), "rnn": (of_model.get("length"), FEATURES)}.get(name, (3, of_model.get("side"), of_model.get("side")))
    patterns = torch.randn((CLASSES, *shape), generator=torch.Generator().manual_seed(2))
    own = torch.Generator().manual_seed(1000 + rank)
    batches = []
    for _ in range(BATCHES):
        labels = torch.randint(CLASSES, (samples,), generator=own)
        batches.append((patterns[labels] + 0.5 * torch.randn((samples, *shape), generator=own), labels))
    return batches
