"""A run for tests of a rank or of an attempt without Spark: its configuration, and what stands for its driver."""

from ddl_magics.runtime.driver.bad_executors import BadExecutors
from ddl_magics.runtime.driver.executor_watch import ExecutorWatch
from ddl_magics.runtime.rank.config import JobConfig
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.runtime.transport.credentials import Credentials


def job(spec, credentials=None, driver=("127.0.0.1", 1)):
    return JobConfig(spec, credentials or Credentials("r", b""), driver, spark="3", executor_cores=1)


class Run:
    """In the place of a `RunContext` and of all that it holds: what an attempt calls."""

    servers = None

    def __init__(self, spec=None, replace=list):
        """spec, replace: as `ExecutorWatch` takes them."""
        self.journal = self.limits = self.network = self
        self.states, self.notices = [], []
        self.executors = ExecutorWatch(spec or RunSpec(), BadExecutors(), self, replace)

    def notice(self, level, message):
        self.notices.append((level, message))

    def enter(self, state, message, **fields):
        self.states.append((state, message))

    def start(self, *_):
        pass

    check_time = check_event = start

    def note_hosts(self, hosts):
        self.hosts = sorted(hosts)
