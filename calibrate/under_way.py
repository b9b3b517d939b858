"""The links as rounds see them, from what a return takes beyond its verification.

Only returns whose request found the drafter idle are read: while it works, a request is stamped late, and waits anyway.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from calibrate.fits import spread_of
from calibrate.idle import FEWEST, overheads
from calibrate.inservice import Returns
from fleet.times.effects import IdleEffect
from fleet.times.step_time import LinkTime


def links_under_way(of_runs: Sequence[Returns], idle: IdleEffect) -> tuple[LinkTime, LinkTime | None]:
    """Return the link, one way, and the way down of a draft after which the next one begins at once.

    A return is a way down and a way up. Both are those of a drafter without idleness, and of any payload. The second is
    None where too few returns show it.
    """
    time_s, gap_s, asked_s, followed = (
        np.concatenate([getattr(returns, name) for returns in of_runs]) for name in Returns.__struct_fields__
    )
    found_idle, down, up = asked_s > 0, overheads(idle, gap_s), overheads(idle, asked_s)
    alone = found_idle & ~followed
    ratios = time_s[alone] / (down + up)[alone]
    latency_s = float(ratios.mean())
    link = LinkTime(latency_s, spread=spread_of(ratios / latency_s))
    ways_s = np.maximum(time_s - latency_s * up, 0.0)[found_idle & followed] / down[found_idle & followed]
    if len(ways_s) < FEWEST:
        return link, None
    return link, LinkTime(float(ways_s.mean()), spread=spread_of(ways_s / ways_s.mean()))


def with_bandwidth(link: LinkTime, pinged: LinkTime) -> LinkTime:
    """Return the link with the bandwidth that pings of several sizes saw."""
    return msgspec.structs.replace(link, bandwidth_bytes_per_s=pinged.bandwidth_bytes_per_s)
