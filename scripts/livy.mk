# A real Apache Livy for the tests and for trying out.
#
# make livy        brings one up on this machine, two executors a session, and prints its URL;
#                  PORT=n and MASTER='local[4]' choose, where none is running yet
# make livy-stop   takes it down
# make test-livy   what holds on every cluster, on a Livy of its own or on the one that DDL_TEST_LIVY_URL names
# make livy-env    builds what the tests marked `livy` need, .venv-cluster and .venv-notebook among it

LIVY_RUNNER := $(wildcard tests/livy/java/org/apache/livy/repl/*.java) tests/livy/child.py

.PHONY: livy livy-stop livy-env livy-clean test-livy

livy: build/livy/livy-repl.jar
	@python3 tests/livy/rig.py start $(if $(PORT),--port $(PORT)) $(if $(MASTER),--master '$(MASTER)')

livy-stop:
	@python3 tests/livy/rig.py stop

livy-env: build/livy/livy-repl.jar .venv-notebook/.ready
	@scripts/setup-livy gateway

test-livy: env .venv-notebook/.ready $(if $(DDL_TEST_LIVY_URL),,build/livy/livy-repl.jar)
	@scripts/setup-livy gateway
	$(PYTHON) -m pytest tests/clusters/test_every_cluster.py --durations=10

build/livy/jars/.ready: tests/livy/pom.xml
	@scripts/setup-livy jars
	@touch $@

build/livy/livy-repl.jar: build/livy/jars/.ready .venv-cluster/.ready $(LIVY_RUNNER)
	@scripts/setup-livy runner

.venv-cluster/.ready: tests/livy/constraints-cluster.txt
	@scripts/setup-livy cluster
	@touch $@

.venv-notebook/.ready: tests/livy/constraints-notebook.txt pyproject.toml
	@scripts/setup-livy notebook
	@touch $@

test test-slow: livy-env

test-slow: kerberos-env

.PHONY: kerberos-env
kerberos-env:
	@scripts/setup-livy kerberos

clean: livy-clean

livy-clean: livy-stop
	rm -f .venv-cluster/.ready .venv-notebook/.ready
