"""The weighted sum over experts."""

import torch


def mixed(network, x):
    share = torch.softmax(network.gate(x), dim=-1)
    parts = [share[..., i : i + 1] * network.expert(i, x) for i in range(len(network.experts))]
    total = 0 + parts[0]
    for part in parts[1:]:
        total = total + part
    return total
