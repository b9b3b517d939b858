"""A figure as SVG: drawn whole without any script; page.js adds hover and zoom to what is marked here for it."""

from collections.abc import Iterator, Sequence
from html import escape

from experiments.report.axes import Axis
from experiments.report.marks import Box, Chart, Dot, Series

WIDTH, HEIGHT, TOP, BOTTOM = 560.0, 340.0, 16.0, 46.0
NAMES = 92.0  # room at the right for the names of series
LANE = 26.0  # height of a lane
NAME_PX = 15.0  # between two names
LETTER_PX = 6.4


def svg_of(chart: Chart, number: int = 0) -> str:
    """Return a figure as an SVG element; `number`: of the figure on its page."""
    height = TOP + BOTTOM + LANE * len(chart.y.words) if chart.boxes else HEIGHT
    left = LETTER_PX * max(len(text) for _, text in chart.y.ticks()) + (30 if chart.y.label else 12)
    right = 12.0 if chart.boxes or not any(_named(one) for one in chart.series) else NAMES
    frame, clip = Frame(chart.x, chart.y, left, TOP, WIDTH - left - right, height - TOP - BOTTOM), f"clip-{number}"
    size = f'viewBox="0 0 {WIDTH:g} {height:g}" role="img" tabindex="0" aria-label="{escape(chart.title)}"'
    whole = f'x="{px(left)}" y="{px(TOP)}" width="{px(frame.width)}" height="{px(frame.height)}"'
    inside = [
        *(_box(frame, box) for box in chart.boxes),
        *(part for one in chart.series for part in _series(frame, one)),
    ]
    names = [] if chart.boxes else list(_names(frame, chart))
    return "\n".join(
        [
            f'<svg class="chart" {size} {frame.data()}>',
            f'<clipPath id="{clip}"><rect {whole}/></clipPath>',
            *_axes(frame),
            f'<g class="marks" clip-path="url(#{clip})">',
            *inside,
            "</g>",
            *names,
            "</svg>",
        ]
    )


class Frame:
    """Where the axes lie in the figure, in pixels."""

    def __init__(self, x: Axis, y: Axis, left: float, top: float, width: float, height: float) -> None:
        self.x, self.y = x, y
        self.left, self.top, self.width, self.height = left, top, width, height

    def across(self, value: float) -> float:
        """Return a value of x in pixels."""
        return self.left + self.width * self.x.share(value)

    def up(self, value: float) -> float:
        """Return a value of y in pixels."""
        return self.top + self.height * (1 - self.y.share(value))

    def data(self) -> str:
        """Return the attributes that page.js reads."""
        ends = {"x0": self.x.low, "x1": self.x.high, "y0": self.y.low, "y1": self.y.high}
        place = {"l": self.left, "t": self.top, "w": self.width, "h": self.height}
        words = {"xwords": int(bool(self.x.words)), "ywords": int(bool(self.y.words))}
        return " ".join(f'data-{name}="{value:.10g}"' for name, value in (ends | place | words).items())


def px(value: float) -> str:
    """Return a length in pixels, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


def _axes(frame: Frame) -> Iterator[str]:
    bottom, right = frame.top + frame.height, frame.left + frame.width
    yield '<g class="xticks">'
    for value, text in frame.x.ticks():
        place = px(frame.across(value))
        yield f'<line class="grid" x1="{place}" x2="{place}" y1="{px(frame.top)}" y2="{px(bottom)}"/>'
        yield f'<text x="{place}" y="{px(bottom + 16)}" text-anchor="middle">{escape(text)}</text>'
    yield '</g><g class="yticks">'
    for value, text in frame.y.ticks():
        place = px(frame.up(value))
        yield f'<line class="grid" x1="{px(frame.left)}" x2="{px(right)}" y1="{place}" y2="{place}"/>'
        yield f'<text x="{px(frame.left - 6)}" y="{px(frame.up(value) + 4)}" text-anchor="end">{escape(text)}</text>'
    yield "</g>"
    yield f'<path class="axis" d="M{px(frame.left)} {px(frame.top)}V{px(bottom)}H{px(right)}"/>'
    middle = px(frame.left + frame.width / 2)
    yield f'<text class="label" x="{middle}" y="{px(bottom + 36)}" text-anchor="middle">{escape(frame.x.label)}</text>'
    if frame.y.label:
        place = px(frame.top + frame.height / 2)
        yield (
            f'<text class="label" transform="translate(13 {place}) rotate(-90)" text-anchor="middle">'
            f"{escape(frame.y.label)}</text>"
        )


def _series(frame: Frame, one: Series) -> Iterator[str]:
    places = [(frame.across(dot.x), frame.up(dot.y)) for dot in one.dots]
    ranged = [dot for dot in one.dots if dot.low is not None and dot.high is not None]
    if one.band and len(ranged) > 1:
        above = [(frame.across(dot.x), frame.up(dot.high or 0.0)) for dot in ranged]
        below = [(frame.across(dot.x), frame.up(dot.low or 0.0)) for dot in reversed(ranged)]
        yield f'<polygon points="{_points([*above, *below])}" fill="{one.colour}" fill-opacity=".16"/>'
    if one.joined and len(places) > 1:
        dash = ' stroke-dasharray="5 4" stroke-width="1.2"' if one.dashed else ""
        yield f'<polyline points="{_points(places)}" stroke="{one.colour}"{dash}/>'
    for dot in ranged:
        place = px(frame.across(dot.x))
        yield (
            f'<line x1="{place}" x2="{place}" y1="{px(frame.up(dot.low or 0.0))}" y2="{px(frame.up(dot.high or 0.0))}" '
            f'stroke="{one.colour}"/>'
        )
    if not one.dashed:
        yield from (_dot(one, dot, place) for dot, place in zip(one.dots, places, strict=True))


def _dot(one: Series, dot: Dot, place: tuple[float, float]) -> str:
    radius = 8 if one.ring else 2.4 if one.faint else 3.6
    look = "none" if one.ring else "#fff" if dot.hollow else one.colour
    edge = f' stroke="{one.colour}" stroke-width="{2 if one.ring else 1.3}"' if one.ring or dot.hollow else ""
    faint = ' fill-opacity=".35"' if one.faint else ""
    tip = f' data-t="{escape(dot.tip)}"' if dot.tip else ""
    return f'<circle cx="{px(place[0])}" cy="{px(place[1])}" r="{radius:g}" fill="{look}"{edge}{faint}{tip}/>'


def _box(frame: Frame, box: Box) -> str:
    left, right = frame.across(box.begin), frame.across(box.end)
    top = frame.up(box.lane) - 0.36 * LANE
    return (
        f'<rect x="{px(left)}" y="{px(top)}" width="{px(max(right - left, 0.5))}" height="{px(0.72 * LANE)}" '
        f'fill="{box.colour}" data-t="{escape(box.tip)}"/>'
    )


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{px(x)},{px(y)}" for x, y in places)


def _named(one: Series) -> bool:
    return bool(one.name) and one.joined and not one.dashed


def _names(frame: Frame, chart: Chart) -> Iterator[str]:
    """Write names at the right edge, level with the ends of their lines, or as near as they do not touch."""
    ends = [(frame.up(one.dots[-1].y), one) for one in chart.series if _named(one) and one.dots]
    last = frame.top + frame.height
    places: list[float] = []
    for wished, _ in sorted(ends, key=lambda end: end[0]):
        places.append(max(wished, places[-1] + NAME_PX if places else frame.top))
    for number in range(len(places) - 1, -1, -1):  # from the bottom up, so that none is below the axis
        limit = last if number == len(places) - 1 else places[number + 1] - NAME_PX
        places[number] = min(places[number], limit)
    x = px(frame.left + frame.width + 6)
    for place, (_, one) in zip(places, sorted(ends, key=lambda end: end[0]), strict=True):
        look = f'class="name" x="{x}" y="{px(place + 4)}" style="fill:{one.colour}"'
        yield f"<text {look}>{escape(shortened(one.name))}</text>"
    if chart.heading and places:
        place = px(max(places[0] - NAME_PX + 4, 9))
        yield f'<text class="heading" x="{WIDTH - 2:g}" y="{place}" text-anchor="end">{escape(chart.heading)}</text>'


def shortened(name: str, most: int = 14) -> str:
    """Return a name that fits beside a figure."""
    return name if len(name) <= most else name[: most - 1] + "…"
