"""The timeline of drafter and targets, as in StarSD's figure 1, drawn from the event table of either world."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from specfleet.figures.style import NEW_FIGURE, STEP_COLOURS, STYLE, Canvas
from specfleet.fleet.scenario.names import DRAFTER, ROUTER

IDLE = {"facecolor": "white", "edgecolor": "#BBBBBB", "hatch": "////"}  # look of a drafter's idle gaps
WAITING, WAIT_LABEL, IDLE_LABEL = "#882255", "request waits", "drafter idle"
LEAST = 0.004  # width of a wait, as a share of the stretch, so that short ones are seen
BOX = 0.62  # height of a box; lanes are 1 apart
ROUND = ["tag", "request", "epoch"]
Scaled = Callable[[float], float]  # a time as a place along x


def draw(
    frames: dict[str, pd.DataFrame], iterations: float = 3.0, most: int | None = None, canvas: Canvas = NEW_FIGURE
) -> Figure:
    """Draw a stretch of about `iterations` iterations from the middle of each run; keys become titles.

    `most`: lanes of a run; the first stations have them.
    """
    with rc_context(STYLE):
        stations = [lanes(frame)[:most] for frame in frames.values()]
        counts = list(map(len, stations))
        ratios = [count + 2 for count in counts]
        panels = canvas.panels(len(frames), 1, 9.0, sum(0.34 * count + 1.1 for count in counts), height_ratios=ratios)
        drawn: set[str] = set()
        for axes, (title, frame), shown in zip(panels, frames.items(), stations, strict=True):
            drawn |= draw_lanes(axes, frame, shown, *middle(frame, iterations))
            axes.set_title(title, loc="left")
        panels[-1].set_xlabel("time, ms")
        looks = {kind: {"color": colour} for kind, colour in STEP_COLOURS.items()}
        looks |= {IDLE_LABEL: IDLE, WAIT_LABEL: {"color": WAITING}}
        handles = [Rectangle((np.nan, 0), 0, 0, **look, label=name) for name, look in looks.items() if name in drawn]
        canvas.legend(panels, handles)
    return panels[0].get_figure(root=True)


def steps_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row a step: station, kind, tag, begin_s, end_s; `alone`: whether it serves that stream alone."""
    names = ["station", "life", "step"]  # a station that is started again numbers its steps from 0
    lives = frame.assign(life=(frame.event == "killed").groupby(frame.station).cumsum())
    starts = lives[lives.event == "start"]
    starts = starts.assign(alone=~starts.duplicated(names, keep=False)).drop_duplicates(names)
    dones = lives[lives.event == "done"].drop_duplicates(names)[[*names, "time_s"]]
    steps = starts.merge(dones, on=names, suffixes=("", "_end"))
    return steps.rename(columns={"time_s": "begin_s", "time_s_end": "end_s"})


def middle(frame: pd.DataFrame, iterations: float) -> tuple[float, float]:
    """Return the ends of a stretch of about so many iterations around the middle of the run, without a prefill."""
    steps = steps_of(frame)
    drafts = steps[steps.kind == "draft"]
    drafts = (drafts if len(drafts) else steps).sort_values("begin_s").reset_index()
    lasting = drafts.groupby("tag").agg(begin_s=("begin_s", "min"), end_s=("end_s", "max"))
    span_s = lasting.end_s.max() - lasting.begin_s.min()
    streams = max(1.0, (lasting.end_s - lasting.begin_s).sum() / span_s) if span_s > 0 else 1.0
    # Ahead of its target a drafter drafts several times for each verification.
    per_iteration = streams * max(1.0, len(drafts) / ((steps.kind == "verify").sum() or len(drafts)))
    length = max(2, round(iterations * per_iteration))
    prefills_s = steps.loc[steps.kind == "prefill", "begin_s"].to_numpy()
    candidates = sorted(range(max(1, len(drafts) - length)), key=lambda place: abs(place - len(drafts) // 2))
    for place in candidates:
        begin_s = drafts.begin_s[place]
        end_s = drafts.end_s[min(place + length, len(drafts) - 1)]
        if not ((prefills_s >= begin_s) & (prefills_s <= end_s)).any():
            return float(begin_s), float(end_s)
    place = candidates[0]
    return float(drafts.begin_s[place]), float(drafts.end_s[min(place + length, len(drafts) - 1)])


def draw_lanes(axes: Axes, frame: pd.DataFrame, stations: list[str], begin_s: float, end_s: float) -> set[str]:
    """Draw one lane a station between two times; return what appears: kinds of steps, idle gaps, waits."""
    steps = shown(frame, begin_s, end_s)
    steps = steps[steps.station.isin(stations)]
    heights = {name: -number for number, name in enumerate(stations)}

    def ms(time_s: float) -> float:
        return 1000 * (min(max(time_s, begin_s), end_s) - begin_s)

    for step in steps.itertuples():
        left, right, height = ms(step.begin_s), ms(step.end_s), heights[step.station]
        colours = {"facecolors": STEP_COLOURS[step.kind], "edgecolors": "white"}
        axes.broken_barh([(left, right - left)], (height - BOX / 2, BOX), **colours, lw=0.8)
        if step.kind == "draft" and step.alone and right - left > 0.02 * 1000 * (end_s - begin_s):
            axes.text((left + right) / 2, height, str(step.tag + 1), ha="center", va="center", fontsize=8)
    drawn = set(steps.kind)
    for name in stations:
        if name.startswith(DRAFTER):
            drawn |= _draw_idle(axes, steps[steps.station == name], ms, heights[name], begin_s, end_s)
    if DRAFTER in stations:
        drawn |= _draw_waits(axes, frame, ms, begin_s, end_s)
    axes.set_yticks(list(heights.values()), [name.replace(".", " ").replace("verifier", "target") for name in stations])
    axes.set_xlim(0, 1000 * (end_s - begin_s))
    axes.set_ylim(-len(stations) + 0.45, 0.95)
    axes.grid(axis="y", visible=False)
    return drawn


def shown(frame: pd.DataFrame, begin_s: float, end_s: float) -> pd.DataFrame:
    """Return the steps between two times."""
    steps = steps_of(frame)
    return steps[(steps.end_s > begin_s) & (steps.begin_s < end_s)]


def lanes(frame: pd.DataFrame) -> list[str]:
    """Return the stations that get a lane, drafters first; a router's steps take no time."""
    names = [name for name in frame.station.unique() if name != ROUTER]
    return sorted(names, key=lambda name: (not name.startswith(DRAFTER), len(name), name))


def _draw_idle(axes: Axes, drafts: pd.DataFrame, ms: Scaled, height: float, begin_s: float, end_s: float) -> set[str]:
    """Hatch the drafter's idle gaps that are long enough to see; return their label if there are any."""
    steps = drafts.sort_values("begin_s")
    gaps = zip(np.maximum.accumulate([begin_s, *steps.end_s]), [*steps.begin_s, end_s], strict=True)
    bars = [(ms(free_s), ms(until_s) - ms(free_s)) for free_s, until_s in gaps
            if until_s - free_s > 0.008 * (end_s - begin_s)]  # fmt: skip
    axes.broken_barh(bars, (height - BOX / 2, BOX), **IDLE, lw=0)
    return {IDLE_LABEL} if bars else set()


def _draw_waits(axes: Axes, frame: pd.DataFrame, ms: Scaled, begin_s: float, end_s: float) -> set[str]:
    """Draw a thin bar above the drafter's lane for every request that waits; return their label if there are any."""
    drafter = frame[frame.station == DRAFTER]
    asked_s = drafter[drafter.event == "draft-request"].groupby(ROUND).time_s.min()  # messages may be repeated
    begun_s = drafter[drafter.event == "start"].groupby(ROUND).time_s.min()
    waits = pd.DataFrame({"asked_s": asked_s, "begun_s": begun_s}).dropna().sort_values("asked_s")
    waits = waits[(waits.begun_s > waits.asked_s) & (waits.begun_s > begin_s) & (waits.asked_s < end_s)]
    tags = sorted({key[0] for key in waits.index})
    for (tag, _, _), wait in waits.iterrows():
        level = BOX / 2 + 0.06 + 0.5 * tags.index(tag) / max(1, len(tags))
        length = max(LEAST * ms(end_s), ms(wait.begun_s) - ms(wait.asked_s))
        axes.broken_barh([(ms(wait.asked_s), length)], (level, 0.045), facecolors=WAITING)
    return {WAIT_LABEL} if len(waits) else set()
