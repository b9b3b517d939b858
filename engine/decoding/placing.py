"""Copies lists of the host to a model's device."""

from collections.abc import Sequence

import numpy as np
import torch

Values = Sequence[object] | np.ndarray | torch.Tensor


def placed(values: Values, device: torch.device, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a list, an array or a host tensor on `device`; a list of integers becomes int64.

    On cuda it goes through pinned memory, so that the host waits neither for the copy nor for earlier work.
    """
    host = torch.as_tensor(values, dtype=dtype)
    return (host.pin_memory() if device.type == "cuda" else host).to(device, non_blocking=True)
