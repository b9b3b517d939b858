"""Numbers with a unit, such as `10ms`, `70%` or `1Gbit`; the key's name gives the dimension.

The suffix of a key is its dimension: `_s` and `_s_per_...` are seconds, `_bytes_per_s` bytes a second, `_per_s` events
a second, `_w` watts, `_tokens` tokens. A share is a number whose type lies between 0 and 1.
"""

import re
from decimal import Decimal

NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*([A-Za-zµμ%/1]*[A-Za-zµμ%])\s*")

TIMES = {
    unit: Decimal(seconds)
    for unit, seconds in {
        "ns": "1e-9", "us": "1e-6", "µs": "1e-6", "μs": "1e-6", "ms": "1e-3", "s": "1", "min": "60", "h": "3600"
    }.items()
}  # fmt: skip
PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
BYTES = {f"{prefix}B": Decimal(factor) for prefix, factor in PREFIXES.items()}
BITS = {f"{prefix}bit": Decimal(factor) / 8 for prefix, factor in PREFIXES.items()}
DATA_RATES = {
    **{f"{unit}/s": factor for unit, factor in (BYTES | BITS).items()},
    **{f"{prefix}bps": Decimal(factor) / 8 for prefix, factor in PREFIXES.items()},
    **BITS,  # a link of 1Gbit: always a second
}
RATES = {"/s": Decimal(1), "/min": Decimal(1) / 60, "/h": Decimal(1) / 3600, "Hz": Decimal(1), "kHz": Decimal(1000)}
POWERS = {"mW": Decimal("1e-3"), "W": Decimal(1), "kW": Decimal(1000)}
SHARES = {"%": Decimal("0.01")}

DIMENSIONS = (  # by the suffix of a key, the first match; with the units as messages list them
    ("_bytes_per_s", DATA_RATES, "bytes a second, or kB/s, MB/s, GB/s, kbit/s, Mbit/s, Gbit/s"),
    ("per_s", RATES, "a number a second, or /s, /min, /h, Hz"),
    ("_w", POWERS, "watts, or mW, W, kW"),
    ("_tokens", {"k": Decimal(1000)}, "tokens, or k: 3k is 3000"),
    ("_s", TIMES, "seconds, or ns, us, ms, s, min, h"),
)


def quantity(text: str, key: str, share: bool) -> float | None:
    """Return the number, in the key's own unit, of a text with a unit; None for other texts.

    - `share`: whether the key is a share of something.

    Raises ValueError, with the allowed units, for a unit of another kind.
    """
    if (parts := NUMBER.fullmatch(text)) is None:
        return None
    of_key = ((units, allowed) for suffix, units, allowed in DIMENSIONS if key.endswith(suffix))
    units, allowed = (SHARES, "a number from 0 to 1, or %") if share else next(of_key, ({}, "a plain number"))
    if (unit := parts[2][parts[2].startswith("1/") :]) not in units:
        raise ValueError(f"the unit {parts[2]!r} does not fit; allowed: {allowed}")
    return float(Decimal(parts[1]) * units[unit])
