"""Muon: momentum whose matrix updates are orthogonalised (Jordan et al. 2024), for the hidden matrices."""

from collections.abc import Iterable

import torch


def orthogonalised(matrix: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """Push the singular values of `matrix` (rows, columns) towards 1 by a quintic Newton-Schulz iteration."""
    a, b, c = 3.4445, -4.7750, 2.0315
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = wide / (wide.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if matrix.shape[0] <= matrix.shape[1] else x.T


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised, scaled so that an update has the same size for every matrix shape."""

    def __init__(self, matrices: Iterable[torch.Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no closure is ever used
        """Update all matrices from their gradients."""
        for group in self.param_groups:
            for matrix in group["params"]:
                velocity = self.state[matrix].setdefault("velocity", torch.zeros_like(matrix))
                velocity.lerp_(matrix.grad, 1 - group["momentum"])
                update = orthogonalised(matrix.grad.lerp(velocity, group["momentum"]))
                rows, columns = matrix.shape
                matrix.add_(update, alpha=-group["lr"] * max(1, rows / columns) ** 0.5)
