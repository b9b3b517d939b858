"""Where targets and drafters may run: on devices that the user names, or on those of a budget, in which precision."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from specfleet.fleet.errors import InputError, MisfitError
from specfleet.fleet.hardware.passes import Placed, precisions_of
from specfleet.fleet.hardware.profile import beside, devices_in, misfit, placed_of
from specfleet.fleet.hardware.shape import ModelShape, mtp_of
from specfleet.fleet.hardware.shipped import device_of, shape_of
from specfleet.fleet.hardware.words import FOUND, MTP

PARALLEL = (1, 2, 4, 8)  # devices of a target: one host's
PRECISIONS = ("bf16", "fp8")  # of weights, to try
Devices = Mapping[str, int] | None
"""A budget: devices of each kind; None for as many as it takes."""


def target_places(texts: Iterable[str], devices: Devices) -> Iterator[str]:
    """Yield the places of targets: the user's, or of a budget every number of each device and every precision."""
    for text in texts:
        if "@" in text or devices is None:
            _check_fits(devices, "--target", text)
            yield text
            continue
        model, colon, precision = text.partition(":")
        shape = shape_of(model)  # published precisions are not quantised again
        tried = (shape.weights_in or PRECISIONS[0],) if shape.quantised else PRECISIONS
        for kind, count in devices.items():
            runs = tried if shape.quantised else precisions_of(device_of(kind))  # else a line says why
            precisions = [precision] if colon else [name for name in tried if name in runs]
            yield from (f"{model}@{n}x{kind}:{name}" for n in PARALLEL if n <= count for name in precisions)


def draft_places(texts: Iterable[str], devices: Devices) -> Iterator[str]:
    """Yield the drafters; of a budget a small model without a place may run on any kind of device that holds it."""
    for text in texts:
        if "@" in text:
            _check_fits(devices, "--draft", text)
        if "@" in text or devices is None or text in (*FOUND, MTP) or shape_of(text).head:
            yield text
        else:
            yield from [place for kind in devices if succeeds(placed_of, place := f"{text}@{kind}")] or [text]


def on_target(text: str, place: str, target: Placed) -> Placed | None:
    """Return a drafter on its target's device, on as many of them as NxDEVICE states; None for what is found."""
    model, _, where = text.rpartition("@") if "@" in text else (text, "", "")
    shape = None if model in FOUND else mtp_of(target.shape) if model == MTP else shape_of(model)
    (kind, count), (own, parallel) = devices_in(text), devices_in(place)
    is_split = bool(where) and where.partition(":")[0] != kind
    if (shape is None or shape.head) and where and (kind != own or (is_split and count != parallel)):
        at = own if kind != own else f"{parallel}x{own}"
        why = "; it reads hidden states there, and small models draft elsewhere" * (shape is not None and kind != own)
        raise InputError(f"--draft {text}: drafts on its target's device, {at}{why}; leave @{where} out")
    if shape is None:
        return None
    if why := misfit(shape, target.shape):
        raise MisfitError(why)
    shared = count if is_split and kind == own and count < parallel else 0
    return beside(target, shape, _precision(text, target, shape), shared)


def succeeds(call: Callable[..., Any], *arguments: Any) -> bool:
    """Whether a call raises no InputError."""
    try:
        call(*arguments)
    except InputError:
        return False
    return True


def _check_fits(devices: Devices, option: str, place: str) -> None:
    if devices is None:
        return
    kind, parallel = devices_in(place)
    if devices.get(kind, 0) < parallel:
        raise InputError(f"{option} {place}: takes {parallel} x {kind}, which --devices does not have")


def _precision(text: str, target: Placed, shape: ModelShape) -> str:
    """Return a drafter's precision on the target's device: its own, else that of its checkpoint, which is the target's
    for an MTP module, and in 16 bits for others.
    """
    asked = text.rpartition("@")[2].partition(":")[2].partition(":")[0] if "@" in text else ""
    usual = shape.weights_in or (target.precision if shape.head == "mtp" else "bf16")
    return asked if asked in precisions_of(target.device) else usual
