# A real YARN and HDFS for the tests and for trying out, as root on Linux: each on hosts of its own (network namespaces).
#
# make yarn        brings them up on this machine, and says how a Spark gets there; LIVY=cluster or LIVY=client has a Livy,
#                  too, whose drivers are in this mode
# make yarn-stop   takes them down
# make yarn-env    fetches the jars with Maven (84 MB), where they are not under build/yarn yet

.PHONY: yarn yarn-stop yarn-env yarn-clean

yarn: env yarn-env $(if $(LIVY),livy-env)
	@PYTHONPATH=tests $(PYTHON) -m yarn.rig start $(if $(LIVY),--livy $(LIVY))

yarn-stop:
	@PYTHONPATH=tests python3 -m yarn.rig stop

yarn-env: build/yarn/jars/.ready

build/yarn/jars/.ready: tests/yarn/pom.xml
	@command -v mvn >/dev/null || { echo "yarn: Maven is missing: run \`make livy-env\`, which installs it, or install maven" >&2; exit 1; }
	@rm -rf build/yarn/jars
	@mvn -B -q -f tests/yarn/pom.xml dependency:copy-dependencies -DincludeScope=runtime \
	  -DoutputDirectory=$(CURDIR)/build/yarn/jars
	@touch $@

test test-slow: yarn-env

clean: yarn-clean

yarn-clean: yarn-stop
