"""A variational autoencoder, 784-200-200-50, batches of 100, Adam: updates a second, with PyTorch eager."""

from __future__ import annotations

import importlib.util

from .case import Case

EPOCHS = 4


def cases() -> list[Case]:
    from energax import fit

    from .mnist_speed import BATCH, ROWS, binary_rows, vae_fit

    x = binary_rows()
    energy, learner = vae_fit()
    loss = {}

    def ours():
        done = fit(energy, {"x": x}, learner, epochs=EPOCHS, batch_size=BATCH, key=0)
        loss["energax"] = float(done.objective)
        return done.energy

    name = "VAE 784-200-200-50, batch 100"
    work = {"units": EPOCHS * ROWS / BATCH, "unit": "updates"}
    if importlib.util.find_spec("torch") is None:
        return [Case(f"{name} (PyTorch is not installed: no peer)", ours, **work)]
    return [
        Case(
            name,
            ours,
            _peer(x),
            peer="PyTorch eager",
            target=1 / 1.5,
            quality=lambda _, theirs: (
                f"negative bound of the last epoch {loss['energax']:.1f} and {theirs:.1f} nats"
            ),
            rest=0.1,
            **work,
        )
    ]


def _peer(x):
    """Return the same epochs in PyTorch, from the same start each time."""
    from .mnist_speed import BATCH

    def theirs() -> float:
        import torch

        from .torch_peers import vae_update

        update, rows = vae_update("cpu"), torch.as_tensor(x)
        for _ in range(EPOCHS):
            losses = [update(rows[indices]) for indices in torch.randperm(len(rows)).split(BATCH)]
        return float(torch.stack(losses).mean())

    return theirs
