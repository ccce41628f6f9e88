"""The pictures that a cell has shown, for the notebook. Their content cannot execute in the notebook's page.

Images are data URIs of image files, which execute nothing. HTML is shown in a sandboxed frame with a separate origin:
its scripts reach neither the page nor the kernel, and cannot navigate.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from ddl_magics.runtime import events as ev

#: Bound of the size that the pictures of a run add to the saved notebook.
MAX_CHARACTERS = 2_000_000

_IMAGES = ("image/png", "image/jpeg")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_ROW_PIXELS, _LEAST_PIXELS, _MOST_PIXELS, _SCRIPT_PIXELS = 27, 80, 400, 480


@dataclass(frozen=True)
class Picture:
    """A picture of a cell; shown when it is a cell's last expression. time: seconds since the epoch.

    data: base64 of an image of type `mime`, or HTML.
    """

    rank: int
    time: float
    mime: str
    data: str

    def _repr_html_(self) -> str:
        local_time = time.strftime("%H:%M:%S", time.localtime(self.time))
        caption = f'<figcaption style="opacity:.7;font-size:12px">rank {self.rank} · {local_time}</figcaption>'
        return f'<figure style="margin:6px 0">{self._drawn()}{caption}</figure>'

    def _drawn(self) -> str:
        if self.mime in _IMAGES:
            return f'<img style="max-width:100%" alt="shown by the cell" src="data:{self.mime};base64,{self.data}">'
        scripts = "<script" in self.data.lower()
        rows = _LEAST_PIXELS + _ROW_PIXELS * self.data.lower().count("<tr")
        height = _SCRIPT_PIXELS if scripts else min(rows, _MOST_PIXELS)
        sandbox = "allow-scripts" if scripts else ""
        style = f"width:100%;height:{height}px;border:0;background:#fff"
        return f'<iframe sandbox="{sandbox}" style="{style}" srcdoc="{escape(self.data)}"></iframe>'


def pictures(events: Iterable[ev.RawEvent]) -> list[Picture]:
    """The pictures of a run, in order, without those whose data does not match their type."""
    candidates = (
        Picture(event.rank, float(event.time), event.mime, event.data) for event in ev.select(ev.Picture, events)
    )
    return [picture for picture in candidates if picture.mime == "text/html" or _is_image(picture)]


def _is_image(picture: Picture) -> bool:
    return picture.mime in _IMAGES and _BASE64.fullmatch(picture.data) is not None


def bundle(cell_pictures: list[Picture], run: str) -> dict[str, str]:
    """Pictures as a MIME bundle: HTML and plain text, at most about `MAX_CHARACTERS`. run: its variable's name."""
    figures: list[str] = []
    for picture in cell_pictures:
        html = picture._repr_html_()
        if sum(map(len, figures)) + len(html) > MAX_CHARACTERS:
            figures.append(f"<p>{len(cell_pictures) - len(figures)} more: {escape(run)}.pictures</p>")
            break
        figures.append(html)
    count = len(cell_pictures)
    plain = f"{count} picture{'' if count == 1 else 's'}: {run}.pictures" if count else ""
    return {"text/html": f'<div class="ddl-pictures">{"".join(figures)}</div>', "text/plain": plain}


#: A cell without any of these words shows no picture.
_SHOWING = re.compile(r"\b(display|plt|pyplot|matplotlib|seaborn|plotly|PIL|plot_model)\b")


def may_show(cell: str) -> bool:
    """Whether a cell may show pictures, by what it names."""
    return _SHOWING.search(cell) is not None
