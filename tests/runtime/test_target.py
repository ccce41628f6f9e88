"""`--target` as a rule: its text, when it is reached, and what a run says of it at its end."""

import pytest

from ddl_magics.runtime import target
from ddl_magics.runtime.driver.limits import RunLimits
from ddl_magics.runtime.events import make, parse
from ddl_magics.runtime.run_spec import RunSpec


@pytest.mark.parametrize(
    ("text", "metric", "value", "direction"),
    [
        ("val_accuracy:0.98", "val_accuracy", 0.98, "max"),
        ("loss:1e-1", "loss", 0.1, "min"),
        ("val_out_sparse_categorical_crossentropy:0.2", "val_out_sparse_categorical_crossentropy", 0.2, "min"),
        ("mean_squared_error:2", "mean_squared_error", 2.0, "min"),
        ("f1_score:0.5", "f1_score", 0.5, "max"),
        ("reward:-5:max", "reward", -5.0, "max"),
        ("accuracy:0.1:min", "accuracy", 0.1, "min"),
        ("a:b:1:min", "a:b", 1.0, "min"),
    ],
)
def test_the_text_of_a_target(text, metric, value, direction):
    assert target.read(text) == (metric, value, direction)


@pytest.mark.parametrize("text", ["", "loss", "loss:", ":1", "loss<1", "loss:nan", "loss:inf", "loss:0.1:most", "max"])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="a metric and a number"):
        target.read(text)


@pytest.mark.parametrize("text", ["reward:1", "accuracy_loss:1"])
def test_a_name_that_does_not_say_which_is_better_needs_a_direction(text):
    with pytest.raises(ValueError, match="does not say which is better"):
        target.read(text)


def test_when_a_target_is_reached():
    accuracy, loss = target.read("accuracy:0.9"), target.read("loss:0.1")
    values = (-1.0, 0.1, 0.11, 0.89, 0.9, 1.0, None, float("nan"))
    assert [value for value in values if accuracy.is_reached(value)] == [0.9, 1.0]
    assert [value for value in values if loss.is_reached(value)] == [-1.0, 0.1]


def epoch(number, rank=0, fit=0, **metrics):
    return make("member" if rank else "epoch", rank, fit=fit, epoch=number, metrics=metrics)


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([epoch(0, loss=0.5), epoch(1, loss=0.09)], "target loss <= 0.1 reached in epoch 2: 0.09"),
        # What a later attempt repeats counts once, with its later value.
        ([epoch(0, loss=0.05), epoch(0, loss=0.5)], "target loss <= 0.1 not reached: the best was 0.5, in epoch 1"),
        ([epoch(0, loss=0.5), epoch(4, fit=1, loss=0.05)], "target loss <= 0.1 reached in epoch 5 of fit 2: 0.05"),
        ([epoch(0, loss=None)], "target loss <= 0.1 not reached: it was never a finite number"),
        ([epoch(0, accuracy=0.5)], "target loss <= 0.1 was not checked: the run reported accuracy"),
        (
            [make("state", -1, state="RUNNING", message="")],
            "target loss <= 0.1 was not checked: the run reported nothing",
        ),
        (
            [epoch(0, loss=0.05), epoch(0, rank=1, loss=0.5), epoch(0, rank=2, loss=0.01)],
            "target loss <= 0.1 reached by 2 of 3 models",
        ),
        (
            [make("values", 1, metrics={"loss": 0.01}, step=None), make("values", 0, metrics={"loss": 0.05}, step=7)],
            "target loss <= 0.1 reached in call 1 of ddl.log: 0.05",
        ),
    ],
)
def test_what_a_run_says_at_its_end(events, says):
    assert target.verdict(target.read("loss:0.1"), events) == says


@pytest.mark.parametrize(
    ("event", "strategy", "stops"),
    [
        (make("values", 0, metrics={"loss": 0.1}, step=3), "tf-allreduce", True),
        (make("values", 0, metrics={"loss": 0.2}, step=3), "tf-allreduce", False),
        (make("values", 0, metrics={"accuracy": 0.1}, step=3), "ps", False),
        (make("values", 1, metrics={"loss": 0.1}, step=3), "ps", False),
        (make("values", 0, metrics={"loss": 0.1}, step=3), "ensemble", False),
        # A fit ends by itself, on all ranks at the same epoch.
        (epoch(0, loss=0.1), "allreduce", False),
    ],
)
def test_which_reports_stop_a_run(event, strategy, stops):
    asked = []
    RunLimits(RunSpec(strategy=strategy, target="loss:0.1"), asked.append).check_event(parse(event))
    assert asked == ([" at --target"] if stops else [])
