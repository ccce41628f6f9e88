"""What `launch` answers to a spec that it cannot read, and that its own errors are not the user's."""

import json

import pytest

from ddl_magics.runtime.driver import api
from ddl_magics.runtime.run_spec import RunSpec


def test_a_spec_of_other_types_is_refused():
    error = json.loads(api.launch(json.dumps({"workers": "2"}), {}))["error"]
    assert error == {"kind": "usage", "message": "workers cannot be '2'"}


def test_an_error_of_the_driver_itself_is_not_called_the_users(monkeypatch):
    def broken(namespace):
        raise ValueError("unexpected")

    monkeypatch.setattr(api, "_session", broken)
    with pytest.raises(ValueError, match="unexpected"):
        api.launch(json.dumps(RunSpec(run="r").to_record()), {})
