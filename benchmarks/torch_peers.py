"""The updates of `benchmarks.mnist_speed` and `bench_vae` in PyTorch: an RBM by PCD-1, and a VAE by Adam."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from typing import Any

VISIBLE, HIDDEN, WIDTH, LATENT = 784, 500, 200, 50


def has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def rbm_update(batch_size: int, device: str, rate: float = 0.05) -> Callable[[Any], None]:
    """Return an update of an RBM by persistent contrastive divergence, in place, for rows x."""
    import torch

    generator = torch.Generator("cpu").manual_seed(0)
    weight = (0.01 * torch.randn(VISIBLE, HIDDEN, generator=generator)).to(device)
    visible, hidden = torch.zeros(VISIBLE, device=device), torch.zeros(HIDDEN, device=device)
    chains = torch.rand(batch_size, VISIBLE, generator=generator).round().to(device)

    @torch.no_grad()
    def update(x: Any) -> None:
        h = torch.bernoulli(torch.sigmoid(chains @ weight + hidden))
        chains.copy_(torch.bernoulli(torch.sigmoid(h @ weight.T + visible)))
        up, down = torch.sigmoid(x @ weight + hidden), torch.sigmoid(chains @ weight + hidden)
        step = rate / len(x)
        weight.add_(x.T @ up - chains.T @ down, alpha=step)
        visible.add_((x - chains).sum(0), alpha=step)
        hidden.add_((up - down).sum(0), alpha=step)

    return update


def vae_update(device: str, capturable: bool = False) -> Callable[[Any], Any]:
    """Return an update of a VAE by Adam, 784-200-200-50 and back, which returns the loss of rows x."""
    import torch
    from torch import nn

    torch.manual_seed(0)

    def network(*sizes: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for a, b in itertools.pairwise(sizes):
            layers += [nn.Linear(a, b), nn.SiLU()]
        return nn.Sequential(*layers[:-1]).to(device)

    encoder = network(VISIBLE, WIDTH, WIDTH, 2 * LATENT)
    decoder = network(LATENT, WIDTH, WIDTH, VISIBLE)
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.Adam(parameters, 1e-3, capturable=capturable)

    def update(x: Any) -> Any:
        optimizer.zero_grad(set_to_none=True)
        mean, spread = encoder(x).chunk(2, 1)
        scale = nn.functional.softplus(spread) + 1e-4
        noise = torch.randn_like(mean)
        z = mean + scale * noise
        wrong = nn.functional.binary_cross_entropy_with_logits(decoder(z), x, reduction="sum")
        log_ratio = 0.5 * (z**2 - noise**2).sum() - scale.log().sum()
        loss = (wrong + log_ratio) / len(x)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return update
