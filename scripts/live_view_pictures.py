"""Makes the pictures of the live view: `python scripts/live_view_pictures.py [--to DIR] [NAME ...]`.

A real JupyterLab draws invented runs. Without names it makes those of the documentation in docs/images; `--to` and
the names "state-..." and "card-..." are for looking at the others. With Pillow installed the files are a third of the
size.
"""

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser.lab import Lab, NotebookPage, chromium  # noqa: E402 - the path to it is set above

IMAGES = ROOT / "docs" / "images"

SOURCE = """\
import time
from browser.player import Player
from support.synthetic import Synthetic
{setup}
player.view.widget"""

#: Played up to 74 % of an all-reduce run, with the times of its events ending now.
TRAIN = """\
run = Synthetic({arguments})
list(run.train({share}))
run = Synthetic({arguments}, start=time.time() - (run.time - {start}))
player = Player(run, "digits")
player.play(run.begin())
player.play(run.train({share}))
"""
START = 1_795_255_200.0


def train(arguments: str, share: float = 0.744, end: str = "") -> str:
    return TRAIN.format(arguments=arguments, share=share, start=START) + end


TALK = """
player.view.feed([run.log(0, "learning rate 0.00100 → 0.00050 (ReduceLROnPlateau)"),
    run.make("notice", 2, level="warning",
             message="1.8× slower than the median for 40 s; its GPU runs at 820 of 1,530 MHz (thermal)")])
"""

CARD = "\nplayer.view.widget.form = 'card'\n"

#: A worker dies, and another one joins.
ELASTIC = "4, gpus=0, steps=120, epochs=8, groups={0.3: [0, 1, 3], 0.55: [0, 1, 3, 4]}"
FOUR = "4, gpus=3, slow={2: 1.8}"
TWO = "2, gpus=0, steps=120, epochs=8"
WAIT = 'run.state("WAITING", "2 of 4 executors after 12 s: they are being started", ready=2, needed=4)'

#: name -> (source, width, dark)
PICTURES = {
    "live-view-light": (train(FOUR, end=TALK), 1180, False),
    "live-view-dark": (train(FOUR, end=TALK), 1180, True),
    "live-view-2-light": (train(TWO), 1180, False),
    "live-view-2-dark": (train(TWO), 1180, True),
    "live-view-64-light": (train("64, slow={11: 1.8, 40: 1.6}", end=TALK), 1180, False),
    "live-view-64-dark": (train("64, slow={11: 1.8, 40: 1.6}", end=TALK), 1180, True),
    "live-view-narrow": (train(FOUR, end=TALK), 560, False),
    "live-view-failed": (train(FOUR, 0.3, "player.play(run.fail(1))"), 1180, False),
    "live-view-finished": (train(FOUR, 1.0, "player.play(run.end())"), 1180, False),
    "live-view-workers-light": (train(ELASTIC), 1180, False),
    "live-view-workers-dark": (train(ELASTIC), 1180, True),
    "live-view-ps": (train('4, gpus=2, strategy="ps", slow={3: 2.1}'), 1180, False),
    "card-light": (train(FOUR, end=CARD), 1180, False),
    "card-dark": (train(FOUR, end=CARD), 1180, True),
    "card-narrow": (train(FOUR, end=CARD), 560, False),
    "card-failed": (train(FOUR, 0.3, "player.play(run.fail(1))" + CARD), 1180, False),
    "state-queued": (
        "run = Synthetic(4, start=time.time() - 7)\nplayer = Player(run)\n"
        'player.play([run.state("QUEUED", "waits for its turn: the run mnist holds the slots")])',
        1180,
        False,
    ),
    "state-waiting": (
        f"run = Synthetic(4, start=time.time() - 12)\nplayer = Player(run, waiting=True)\nplayer.play([{WAIT}])",
        1180,
        True,
    ),
    "state-starting": (
        "run = Synthetic(2, gpus=0, start=time.time() - 3)\nplayer = Player(run)\nplayer.play(run.begin())",
        1180,
        False,
    ),
    "state-stopped": (
        train(TWO, 0.5, 'player.play(run.end("STOPPED", "stopped after epoch 4; model and history are kept"))'),
        1180,
        False,
    ),
    "state-lost": (
        train(TWO, 0.5, 'player.play(run.end("LOST", "the session is gone: %ddl attach digits once it is back"))'),
        1180,
        True,
    ),
}


def reduce(path: Path) -> None:
    """256 colours are enough for lines and text."""
    try:
        from PIL import Image
    except ImportError:
        return
    Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def main(names: list[str]) -> None:
    folder_of_pictures = IMAGES
    if names[:1] == ["--to"]:
        folder_of_pictures, names = Path(names[1]).resolve(), names[2:]
    folder_of_pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        lab = Lab(Path(folder))
        try:
            for name in names or [name for name in PICTURES if name.startswith("live-view")]:
                source, width, dark = PICTURES[name]
                context = browser.new_context(viewport={"width": width, "height": 900}, device_scale_factor=1.5)
                notebook = NotebookPage(lab, context.new_page())
                notebook.open(lab.write(f"{name}.ipynb", SOURCE.format(setup=source)))
                theme = "JupyterLab Dark" if dark else "JupyterLab Light"
                notebook.command("apputils:change-theme", theme=theme)
                notebook.command("application:toggle-left-area")
                notebook.run_all()
                notebook.view.wait_for()
                notebook.page.wait_for_function("document.querySelector('.ddl-chip')?.textContent")
                notebook.page.wait_for_function(
                    f"document.body.dataset.jpThemeLight === '{'false' if dark else 'true'}'"
                )
                time.sleep(0.7)  # the bar's animation; this is a picture, not a test
                target = folder_of_pictures / f"{name}.png"
                notebook.view.screenshot(path=target)
                reduce(target)
                print(target, *notebook.errors)
                context.close()
        finally:
            lab.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
