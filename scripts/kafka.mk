# A real Kafka broker for the tests, and Spark's source for it.
#
# make kafka-env   fetches the jars with Maven, where they are not under build/kafka yet
# make kafka       brings a broker up on this machine, and prints its address

.PHONY: kafka kafka-env

kafka-env: build/kafka/.ready

# After the Livy, whose set-up brings Maven.
build/kafka/.ready: tests/kafka/pom.xml | build/livy/jars/.ready
	@rm -rf build/kafka
	@mvn -B -q -f tests/kafka/pom.xml -P broker dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/build/kafka/broker
	@mvn -B -q -f tests/kafka/pom.xml -P spark dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/build/kafka/spark
	@touch $@

kafka: env kafka-env
	@PYTHONPATH=tests $(PYTHON) tests/kafka/rig.py

test test-slow: kafka-env
