"""Draws docs/rooms.svg, the rooms of the code and the imports between them: `make docs`. A test compares the two."""

import sys
import textwrap
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts")]

from layered_graph import Arrow, Item, columns, layered, reduced  # noqa: E402 - the path to it is set above
from support.rooms import FLOORS, MODULES, PACKAGE, RUNTIME, RUNTIME_FLOORS, arrows, rooms  # noqa: E402

PICTURE = ROOT / "docs" / "rooms.svg"

# In pixels, but for the last.
WIDTH = 900
MARGIN = 20
ROOM_WIDTH, ROOM_HEIGHT = 186, 60
LANE_WIDTH = 8
GAP = 18
STOREY = 94
HEAD = 70
PORT = 30
STRAIGHT = 12  # an arrow that moves less to the side is not curved
LETTERS_A_LINE, LETTERS_A_SHELF = 29, 110

STYLE = """
    svg { --paper: #ffffff; --ink: #1f2933; --soft: #4b5763; --arrow: #7b8794; --roof: #f4f7fb; --line: #c3cfdd;
      --room: #dbe9fb; --edge: #8fb2e0; --runtime: #fff8ee; --runtime-room: #fde6c9; --runtime-edge: #dcaa74 }
    @media (prefers-color-scheme: dark) {
      svg { --paper: #0d1117; --ink: #e6edf3; --soft: #b3bdc8; --arrow: #8b98a5; --roof: #131a23; --line: #323c48;
        --room: #1b3354; --edge: #44709f; --runtime: #201913; --runtime-room: #46301d; --runtime-edge: #90683f }
    }
    text { fill: var(--ink) }
    .paper { fill: var(--paper) }
    .house { fill: var(--roof); stroke: var(--line) }
    .room { fill: var(--room); stroke: var(--edge) }
    .runtime .house { fill: var(--runtime); stroke: var(--runtime-edge) }
    .runtime .room { fill: var(--runtime-room); stroke: var(--runtime-edge) }
    .title { font-size: 17px; font-weight: 700 }
    .name { font-size: 14.5px; font-weight: 600; text-anchor: middle }
    .purpose { font-size: 11.5px; text-anchor: middle; fill: var(--soft) }
    .soft { font-size: 12px; fill: var(--soft) }
    .arrow { fill: none; stroke: var(--arrow); stroke-width: 1.5 }
    .tip { fill: var(--arrow) }
"""


class House:
    """The rooms of the package, or those of the runtime inside it, laid out.

    Attributes:
        shelf: the small files that import no room; arrows to them are not drawn.
        bottom: y below the last floor.
    """

    def __init__(self, floors: Mapping[str, str], inside_runtime: bool, top: int, left: int, right: int) -> None:
        self._purposes, self._prefix = floors, RUNTIME if inside_runtime else PACKAGE
        if missing := rooms(inside_runtime) - set(floors):
            raise SystemExit(f"give {', '.join(sorted(missing))} a floor in tests/support/rooms.py")
        imports: dict[str, set[str]] = {name: set() for name in floors}
        for above, below, _ in arrows(inside_runtime):
            imports[above].add(below)
        self.shelf = [name for name in floors if self._is_file(name) and not imports[name]]
        self._imports = {name: there - set(self.shelf) for name, there in imports.items() if name not in self.shelf}
        self._arrows = reduced(self._imports)
        layers, steps = layered(list(self._imports), self._arrows)
        widths: dict[Item, int] = {
            item: LANE_WIDTH if isinstance(item, tuple) else ROOM_WIDTH for layer in layers for item in layer
        }
        widths["runtime"] = right - left
        self._x = columns(layers, steps, widths, GAP, left, right)
        self._y = {item: top + number * STOREY for number, layer in enumerate(layers) for item in layer}
        self.bottom = top + len(layers) * STOREY - (STOREY - ROOM_HEIGHT)
        # The items that an arrow passes, with those of its ends.
        self._ways: dict[Arrow, list[Item]] = {
            arrow: [arrow[0], *((arrow, n) for n in range(len(layers)) if (arrow, n) in self._x), arrow[1]]
            for arrow in self._arrows
        }

    def _is_file(self, name: str) -> bool:
        return f"{self._prefix}.{name}" in MODULES

    def label(self, name: str) -> str:
        return f"{name}.py" if self._is_file(name) else f"{name}/"

    def y(self, name: str) -> int:
        return self._y[name]

    def svg(self) -> Iterator[str]:
        """The lines of its arrows and rooms, without the room `runtime`, which is a house."""
        for arrow in self._arrows:
            yield from self._arrow(arrow)
        for name in self._imports:
            if name != "runtime":
                yield from self._room(name)

    def _room(self, name: str) -> Iterator[str]:
        x, y = self._x[name], self._y[name]
        purpose = textwrap.wrap(self._purposes[name], LETTERS_A_LINE)
        assert len(purpose) <= 2, f"{name}: its purpose does not fit into two lines"
        below = ", ".join(sorted(self._imports[name])) or "no other room"
        first = y + ROOM_HEIGHT // 2 + 18 - 7 * len(purpose)
        yield f"<g><title>{self.label(name)} imports {below}</title>"
        yield _rectangle("room", x - ROOM_WIDTH // 2, y, ROOM_WIDTH, ROOM_HEIGHT, 7)
        yield f'<text class="name" x="{x}" y="{first - 16}">{self.label(name)}</text>'
        for number, text in enumerate(purpose):
            yield f'<text class="purpose" x="{x}" y="{first + 14 * number}">{escape(text)}</text>'
        yield "</g>"

    def _arrow(self, arrow: Arrow) -> Iterator[str]:
        above, below = arrow
        leaving = sorted((way for way in self._ways.values() if way[0] == above), key=lambda way: self._x[way[1]])
        arriving = sorted((way for way in self._ways.values() if way[-1] == below), key=lambda way: self._x[way[-2]])
        way = self._ways[arrow]
        x: float
        x, y = self._x[above] + _port(leaving.index(way), len(leaving)), self._y[above] + ROOM_HEIGHT
        path = f"M{x:g} {y}"
        for lane in way[1:-1]:
            path += _curve(x, y, self._x[lane], self._y[lane])
            x, y = self._x[lane], self._y[lane] + ROOM_HEIGHT
            path += f"V{y}"
        end = x if below == "runtime" else self._x[below] + _port(arriving.index(way), len(arriving))
        yield f'<path class="arrow" d="{path}{_curve(x, y, end, self._y[below] - 7)}"/>'
        yield f'<path class="tip" d="M{end:g} {self._y[below] - 1}l-4.5 -8.5h9z"/>'


def _port(number: int, count: int) -> float:
    """Where one of several arrows leaves or reaches a room, from the room's middle."""
    return (number - (count - 1) / 2) * PORT


def _curve(x: float, y: int, to_x: float, to_y: int) -> str:
    if abs(to_x - x) < STRAIGHT:
        return f"L{to_x:g} {to_y}"
    bend = (to_y - y) // 2
    return f"C{x:g} {y + bend} {to_x:g} {to_y - bend} {to_x:g} {to_y}"


def _rectangle(kind: str, x: int, y: int, width: int, height: int, corner: int = 12) -> str:
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{corner}"/>'


def _heading(x: int, y: int, title: str, note: str) -> Iterator[str]:
    yield f'<text class="title" x="{x}" y="{y}">{title}</text>'
    yield f'<text class="soft" x="{x}" y="{y + 19}">{escape(note)}</text>'


def _shelf(house: House, x: int, y: int) -> tuple[list[str], int]:
    """The small files of a house, and where the house ends."""
    names = ", ".join(house.label(name) for name in house.shelf if name != "__init__")
    lines = textwrap.wrap(f"Small files, imported from anywhere: {names}", LETTERS_A_SHELF)
    texts = [f'<text class="soft" x="{x}" y="{y + 32 + 17 * n}">{text}</text>' for n, text in enumerate(lines)]
    return texts, y + 32 + 17 * len(lines)


def picture() -> str:
    """The text of docs/rooms.svg."""
    inner = 2 * MARGIN  # where the runtime's house begins
    x = 3 * MARGIN  # where its rooms may begin
    package = House(FLOORS, False, MARGIN + HEAD, inner, WIDTH - inner)
    runtime_top = package.y("runtime")
    runtime = House(RUNTIME_FLOORS, True, runtime_top + HEAD, x, WIDTH - x)
    runtime_shelf, runtime_bottom = _shelf(runtime, x, runtime.bottom)
    shelf, bottom = _shelf(package, inner, runtime_bottom)
    height = bottom + MARGIN + 24
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-labelledby="title" font-family="system-ui, -apple-system, \'Segoe UI\', sans-serif">',
        '<title id="title">The rooms of the code. Imports point down.</title>',
        f"<style>{STYLE}</style>",
        _rectangle("paper", 0, 0, WIDTH, height),
        _rectangle("house", MARGIN, MARGIN, WIDTH - 2 * MARGIN, bottom - MARGIN),
        *_heading(inner, MARGIN + 32, "ddl_magics", "on the notebook's machine"),
        *package.svg(),
        *shelf,
        '<g class="runtime">',
        _rectangle("house", inner, runtime_top, WIDTH - 2 * inner, runtime_bottom - runtime_top),
        *_heading(x, runtime_top + 32, "ddl_magics/runtime", "sent to the cluster, imports nothing above it"),
        *runtime.svg(),
        *runtime_shelf,
        "</g>",
        f'<text class="soft" x="{MARGIN}" y="{bottom + 26}">An arrow: the upper room imports the lower one. An arrow '
        "that follows from others is left out.</text>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture())
    print(f"wrote {PICTURE.name}")
