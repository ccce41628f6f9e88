"""The line of a cell from the spec of its run: reading it back gives the spec."""

import dataclasses

import pytest

from ddl_magics.options.line import cell_of, masked_settings
from ddl_magics.options.parsing import parse
from ddl_magics.runtime.run_spec import RunSpec


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--workers 4 --seed 7 --timeout 2h --attempts 3",
        "--strategy ps --rule dynsgd --ps 2 --window 8",
        "--data df --features a,b,c --label y --batch-size 64 --validation 0.2 --where 'x > 3 and y = \"it''s\"'",
        "--data hdfs:///sales/*.parquet --label y --sequence-length 5 --order-by t --group-by a b --horizon 2",
        "--set lr=0.01 --set 'name=two words' --conf spark.executor.memory=4g --conf 'spark.x=a b'",
        "--compression bf16 --no-prewarm --sync-batchnorm --target val_accuracy:0.98 --stall 90",
        "--trials 4 --objective val_loss:min --search random --prune median",
        "--out hdfs:///models --checkpoint hdfs:///checkpoints --checkpoint-every 2 --files a.py data/*.csv",
        "--no-provenance --encrypt yes --gpus 1",
    ],
)
def test_a_line_comes_back(line):
    spec = dataclasses.replace(parse(line), cell="model.fit(x)\n", seed=5)
    first, _, cell = cell_of(spec, "again").partition("\n")
    assert cell == spec.cell and first.startswith("%%distributed --name again")
    read = parse(first.removeprefix("%%distributed"))
    assert dataclasses.replace(read, cell=spec.cell, name=spec.name) == spec


def test_secrets_are_left_out_and_named():
    spec = RunSpec.from_record({"conf": {"spark.a": "1", "spark.password": "***"}, "cell": "x"})
    assert "spark.a=1" in cell_of(spec) and "***" not in cell_of(spec)
    assert masked_settings(spec) == ["spark.password"]
