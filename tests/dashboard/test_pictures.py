"""The pictures of a cell in the notebook: drawn, and never trusted."""

import base64
from types import SimpleNamespace

import pytest

from ddl_magics.dashboard import pictures
from ddl_magics.runtime import events as ev

PNG = base64.b64encode(b"\x89PNG").decode()


def event(mime="image/png", data=PNG, rank=0):
    return {**ev.make("picture", rank, mime=mime, data=data), "time": 1_700_000_000.0}


def test_an_image_is_drawn_with_its_rank_and_time():
    (picture,) = pictures.pictures([event(rank=2), ev.make("notice", 0, level="info", message="")])
    html = picture._repr_html_()
    assert f'src="data:image/png;base64,{PNG}"' in html and "rank 2 · " in html


@pytest.mark.parametrize(
    "given",
    [event(data='x" onerror="alert(1)'), event(data=""), event(mime="image/svg+xml"), event(mime='x" onload="y')],
)
def test_what_is_no_image_is_left_out(given):
    assert pictures.pictures([given]) == []


def test_html_is_in_a_sandbox():
    attack = '<script>top.x = 1</script>"></iframe><script>top.y = 1</script>'
    for data, sandbox in ((attack, "allow-scripts"), ("<b>bold</b>", "")):
        (picture,) = pictures.pictures([event("text/html", data)])
        html = picture._repr_html_()
        assert f'<iframe sandbox="{sandbox}"' in html and "allow-same-origin" not in html
        assert html.count("<script") == 0 and html.count("</iframe>") == 1 and html.count('"') % 2 == 0


def test_the_block_is_bounded(monkeypatch):
    monkeypatch.setattr(pictures, "MAX_CHARACTERS", 1000)
    shown = pictures.pictures([event(data="A" * 160)] * 9)
    drawn = pictures.bundle(shown, "run_1")
    assert len(drawn["text/html"]) < 1200 and "more: run_1.pictures" in drawn["text/html"]
    assert drawn["text/plain"] == "9 pictures: run_1.pictures"


def test_a_cell_that_may_show_pictures_gets_their_place_from_the_start(monkeypatch):
    from ddl_magics.notebook import display

    updates, listeners = [], []
    handle = SimpleNamespace(update=lambda bundle, raw: updates.append(bundle["text/html"]))
    monkeypatch.setattr("IPython.display.display", lambda *args, **options: handle)
    run = SimpleNamespace(pictures=[], name="r", listen=listeners.append)
    display._follow_pictures(run)
    run.pictures = pictures.pictures([event()])
    listeners[0]([ev.make("notice", 0, level="info", message="")])
    assert updates == []
    listeners[0]([event()])
    assert PNG in updates[0]
    assert pictures.may_show("plt.show()") and pictures.may_show("display(table)")
    assert not pictures.may_show("model.fit(x, y)")
