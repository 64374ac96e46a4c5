"""Draws the figures of a run as an SVG: a row for each scenario, a point for each contender, on a logarithmic scale."""

import math
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

# Colours that people with colour-blindness tell apart, and shapes for all who print.
MARKS = {
    "call": ("#999999", "square"),
    "ThreadPoolExecutor": ("#d55e00", "circle"),
    "ThreadPool": ("#e69f00", "circle"),
    "joblib": ("#cc79a7", "circle"),
    "asyncio": ("#56b4e9", "circle"),
    "hypertile": ("#f0e442", "diamond"),
    "filch-pure": ("#009e73", "diamond"),
    "filch-native": ("#000000", "diamond"),
    "go": ("#0072b2", "square"),
    "java": ("#7a4b2b", "square"),
}
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 900, 110, 20, 64, 30
FONT = 'font-family="sans-serif" font-size="12"'
ROW_HEIGHT = 26
RADIUS = 5
UNITS = ((1e0, "1 ns"), (1e1, "10 ns"), (1e2, "100 ns"), (1e3, "1 us"), (1e4, "10 us"), (1e5, "100 us"))
MORE_UNITS = ((1e6, "1 ms"), (1e7, "10 ms"), (1e8, "100 ms"), (1e9, "1 s"), (1e10, "10 s"))


def plot(figures: dict[str, Any]) -> str:
    """Return the SVG of the scenarios whose figure is a time.  `figures` is what --json writes."""
    rows = {name: one for name, one in figures["scenarios"].items() if one["unit"] == "ns" and one["contenders"]}
    values = [
        value
        for row in rows.values()
        for got in row["contenders"].values()
        for value in (got["min"], got["p90"])
        if value > 0
    ]
    low = math.floor(math.log10(min(values, default=1)))
    high = max(math.ceil(math.log10(max(values, default=10))), low + 1)
    height = TOP + ROW_HEIGHT * len(rows) + BOTTOM

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(max(value, 10.0**low)) - low) / (high - low)

    present = [name for name in MARKS if any(name in row["contenders"] for row in rows.values())]
    parts: list[str] = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {FONT}>',
        f"<title>{escape(title(figures))}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="18">{escape(title(figures))}</text>',
        *legend(present),
        *grid(low, high, height, x),
    ]
    for number, (name, row) in enumerate(rows.items()):
        middle = TOP + ROW_HEIGHT * (number + 0.5)
        parts.append(f'<text x="{LEFT - 10}" y="{middle + 4:.1f}" text-anchor="end">{escape(name)}</text>')
        for contender in present:
            got = row["contenders"].get(contender)
            if got and got["median"] > 0:
                parts += point(contender, got, middle, x)
    return "\n".join([*parts, "</svg>", ""])


def title(figures: dict[str, Any]) -> str:
    lock = "GIL" if figures["gil"] else "free-threaded"
    return (
        f"Time an operation (less is better): median, and a line from the least to the 90th percentile; "
        f"{figures['python']}, {lock}, {figures['workers']} workers"
    )


def legend(present: Iterable[str]) -> Iterator[str]:
    x = 14.0
    for name in present:
        yield shape(name, x, 36)
        yield f'<text x="{x + 9}" y="40">{escape(name)}</text>'
        x += 24 + 6.4 * len(name)


def grid(low: int, high: int, height: int, x: Any) -> Iterator[str]:
    for value, name in UNITS + MORE_UNITS:
        if 10.0**low <= value <= 10.0**high:
            yield f'<line x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{TOP}" y2="{height - BOTTOM}" stroke="#dddddd"/>'
            yield f'<text x="{x(value):.1f}" y="{height - 12}" text-anchor="middle" fill="#555555">{name}</text>'


def point(contender: str, got: dict[str, Any], y: float, x: Any) -> Iterator[str]:
    colour, _ = MARKS[contender]
    yield f'<line x1="{x(got["min"]):.1f}" x2="{x(got["p90"]):.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}"/>'
    yield shape(contender, x(got["median"]), y)


def shape(contender: str, x: float, y: float) -> str:
    colour, kind = MARKS[contender]
    style = f'fill="{colour}" fill-opacity="0.85" stroke="{colour}"'
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" {style}/>'
    turn = f' transform="rotate(45 {x:.1f} {y:.1f})"' if kind == "diamond" else ""
    side = RADIUS * 1.7
    return f'<rect x="{x - side / 2:.1f}" y="{y - side / 2:.1f}" width="{side}" height="{side}" {style}{turn}/>'
