"""Pictures that the cell shows: what a notebook would draw becomes events, of the chief and within bounds.

matplotlib, plotly and Pillow are used only where the cell uses them. A worker needs none of them.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib
import io
import sys
from typing import Any, Callable

PNG, JPEG, HTML = "image/png", "image/jpeg", "text/html"

#: The largest picture, of an image's file or of HTML as text.
MAX_BYTES = 256 << 10
#: So many pictures of a rank are sent, and so many bytes of them.
MAX_PICTURES = 50
MAX_TOTAL_BYTES = 4 << 20
#: Of all ranks together.
MAX_RUN_BYTES = 32 << 20
#: A matplotlib figure that is too large is drawn again with so many dots per inch.
LESS_DPI = (72, 48)


class Pictures:
    """emit(mime=, data=): reports a picture; data: base64 of an image, or HTML. warn: shows the user a line, once.

    showing: how many ranks show pictures. shows: whether this is one of them by now; the cells of others show what its
    cell shows: they draw nothing.
    """

    def __init__(
        self,
        emit: Callable[..., None],
        warn: Callable[[str], None],
        showing: int = 1,
        shows: Callable[[], bool] = lambda: True,
    ) -> None:
        self._emit, self._warn, self._shows = emit, warn, shows
        self._max_bytes = min(MAX_TOTAL_BYTES, MAX_RUN_BYTES // showing)
        self._count = self._size = 0

    def display(self, *objects: Any, **_options: Any) -> None:
        """IPython's `display`: shows objects; prints those that have no picture."""
        for value in objects:
            if self._shows() and not self.show(value):
                print(repr(value))

    def show(self, value: Any) -> bool:
        """Show the picture of a value; False where it has none."""
        if not self._shows():
            return False
        picture = _picture(value)
        if picture is not None:
            self._send(*picture)
        return picture is not None

    def hook(self, source: str) -> None:
        """Where the cell may use matplotlib or IPython, have their functions that show something call this."""
        if "matplotlib" in source or "pyplot" in source or "seaborn" in source:
            with contextlib.suppress(ImportError):  # the cell says so, in the line that needs it
                importlib.import_module("matplotlib").use("Agg")
                plt = importlib.import_module("matplotlib.pyplot")
                # matplotlib.use gives pyplot's functions a signature, which a method cannot have.
                plt.__dict__["show"] = functools.partial(self.show_figures)
        if "display" in source or "IPython" in source:
            for name in ("IPython.display", "IPython.core.display_functions"):
                with contextlib.suppress(ImportError):
                    importlib.import_module(name).__dict__["display"] = self.display

    def show_figures(self, *_arguments: Any, **_options: Any) -> None:
        """`plt.show`, also at the end of the cell: shows matplotlib's open figures, and closes them."""
        plt = sys.modules.get("matplotlib.pyplot")
        if plt is None:
            return
        for number in plt.get_fignums():
            self.show(plt.figure(number))
        plt.close("all")

    def _send(self, mime: str, data: bytes | str) -> None:
        size = len(data)
        if size > MAX_BYTES:
            message = "a picture of %.1f MB is not shown, only those up to %d kB: save it to a file, which comes back"
            return self._warn(message % (size / 1e6, MAX_BYTES >> 10))
        if self._count >= MAX_PICTURES or self._size + size > self._max_bytes:
            message = "%d pictures are shown and no more: save the others to files, which come back"
            return self._warn(message % self._count)
        self._count += 1
        self._size += size
        text = base64.b64encode(data).decode("ascii") if isinstance(data, bytes) else data
        self._emit(mime=mime, data=text)


def _picture(value: Any) -> tuple[str, bytes | str] | None:
    """(MIME type, an image's bytes or HTML) of a value as a notebook would show it; None where that is text."""
    package = type(value).__module__.split(".")[0]
    if package == "matplotlib" and hasattr(value, "savefig"):
        return PNG, _figure_png(value)
    if package == "plotly" and hasattr(value, "to_html"):
        # In the page plotly's script comes from its own host: with it each figure would have 4 MB.
        return HTML, value.to_html(full_html=False, include_plotlyjs="cdn")
    for mime, name in ((PNG, "_repr_png_"), (JPEG, "_repr_jpeg_"), (HTML, "_repr_html_")):
        data = _call(value, name)
        if isinstance(data, tuple):  # with metadata
            data = data[0]
        if mime == HTML and isinstance(data, str):
            return mime, data
        if mime != HTML and isinstance(data, str):
            data = base64.b64decode(data)
        if mime != HTML and isinstance(data, bytes):
            return mime, data
    return None


def _call(value: Any, name: str) -> Any:
    """What a method of a value returns; None where it has none, or it raises: a notebook tries the next, too."""
    method = None if isinstance(value, type) else getattr(value, name, None)
    try:
        return method() if callable(method) else None
    except Exception:
        return None


def _figure_png(figure: Any) -> bytes:
    data = b""
    for dpi in (None, *LESS_DPI):
        file = io.BytesIO()
        figure.savefig(file, format="png", bbox_inches="tight", **({} if dpi is None else {"dpi": dpi}))
        data = file.getvalue()
        if len(data) <= MAX_BYTES:
            break
    return data
