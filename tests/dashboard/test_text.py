"""Text progress: events in, lines out."""

import pytest
from support.fake_cluster import epoch, state, steps, training

from ddl_magics.dashboard.text import TextProgress, duration, number
from ddl_magics.runtime import events as ev


def at(time, event):
    return {**event, "time": time}


def test_a_run_that_goes_well():
    lines = TextProgress("digits").feed(training())
    assert lines == [
        "digits  0:00  STARTING: looking for 2 slots",
        "digits  0:00  RUNNING: 2 workers train",
        "0 │ hello 0",
        "digits  epoch 1/2  loss 1  accuracy 0.5  640 samples/s  2.0 s",
        "0 │ hello 1",
        "digits  epoch 2/2  loss 0.5  accuracy 0.6  640 samples/s  2.0 s",
        "digits  0:00  FINISHED: done",
    ]


def test_lines_come_as_events_do():
    progress = TextProgress("d")
    assert progress.feed([at(10.0, state(ev.RUNNING, "go"))]) == ["d  0:00  RUNNING: go"]
    assert progress.feed([]) == []
    assert progress.feed([at(75.0, state(ev.FINISHED, "done"))]) == ["d  1:05  FINISHED: done"]


def test_a_failure_names_rank_and_host():
    failure = {"rank": 1, "host": "wn3", "kind": "error", "message": "ValueError: bad", "traceback": ""}
    assert TextProgress("d").feed([state(ev.FAILED, "rank 1 failed", failure=failure)]) == [
        "d  0:00  FAILED on rank 1 (wn3): ValueError: bad"
    ]


def test_a_later_fit_is_numbered_and_rates_are_of_its_own_epoch():
    progress = TextProgress("d")
    progress.feed([ev.make("fit", 0, fit=0, model="m", epochs=1, steps=1), steps(0, 0), epoch(0, loss=1.0)])
    progress.feed([ev.make("fit", 0, fit=1, model="m", epochs=3, steps=1)])
    (line,) = progress.feed([{**steps(0, 0, rows=100, seconds=1.0), "fit": 1}, {**epoch(0, loss=None), "fit": 1}])
    assert line == "d  fit 2, epoch 1/3  loss nan  100 samples/s  2.0 s"


def test_unknown_kinds_change_nothing():
    assert TextProgress("d").feed([{"kind": "of_a_later_version", "rank": 0, "time": 1.0}]) == []


@pytest.mark.parametrize(
    "text",
    [
        "Epoch 1/5\n",
        "\x1b[1m 3/12\x1b[0m \x1b[32m━━━\x1b[0m 1s 2ms/step - loss: 1.2\n",
        "1/9 ━━━ 1s\r9/9 ━━━━ 1s\n",
        "16/16 - 1s - 66ms/step - loss: 1.9799\n",
    ],
)
def test_progress_bars_of_keras_are_left_out(text):
    assert TextProgress("d").feed([ev.make("log", 0, stream="stdout", text=text)]) == []


def test_printed_text_is_the_chiefs_and_cannot_move_the_cursor():
    lines = TextProgress("d").feed(
        [
            ev.make("log", 1, stream="stdout", text="other\n"),
            ev.make("log", 0, stream="stderr", text="a\n\x1b[2Jb\n"),
            ev.make("notice", 1, level="warning", message="slow"),
        ]
    )
    assert lines == ["0 │ a", "0 │ b", "d  warning: rank 1: slow"]


def test_a_file_on_its_way_is_told_until_it_is_here():
    def transfer(done):
        return ev.make("transfer", ev.JOB, name="model-0.keras", done=done, size=64 * 10**6)

    assert TextProgress("d").feed([transfer(12_400_000)]) == ["d  model-0.keras: 12 of 64 MB"]
    assert TextProgress("d").feed([transfer(64 * 10**6)]) == []


def test_numbers_as_read():
    assert (number(0.123456), number(1e-9), number(None)) == ("0.1235", "1e-09", "nan")
    assert (duration(7.9), duration(760), duration(3723), duration(-1)) == ("0:07", "12:40", "1:02:03", "0:00")


def test_lines_have_no_control_characters():
    notice = ev.make("notice", ev.JOB, level="warning", message="a\x1b[31mb\x9b32mc\x85d\ne\0")
    assert TextProgress("d").feed([notice, epoch(0, **{"\x1b]0;t\x07loss": 1.0})]) == [
        "d  warning: abcd e",
        "d  epoch 1  loss 1  2.0 s",
    ]
