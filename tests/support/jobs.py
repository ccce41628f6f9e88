"""What the ranks of a run have in common, for tests of a rank or of an attempt without Spark."""

from ddl_magics.runtime.rank.config import JobConfig
from ddl_magics.runtime.transport.credentials import Credentials


def job(spec, credentials=None, driver=("127.0.0.1", 1)):
    return JobConfig(spec, credentials or Credentials("r", b""), driver, spark="3", executor_cores=1)
