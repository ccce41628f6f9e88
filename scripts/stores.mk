# Storage of clusters for the tests: Spark's client of S3 with moto as S3, and HDFS in one process.
#
# make tables-env   fetches Delta and Iceberg for Spark and for Python (200 MB)
# make stores-env   fetches the jars with Maven (370 MB) and builds .venv-stores, where they are not here yet

STORES := .venv-stores

.PHONY: stores-env stores-clean tables-env

stores-env: build/stores/.ready $(STORES)/.ready

# After the Livy, whose set-up brings Maven.
build/stores/.ready: tests/stores/pom.xml | build/livy/jars/.ready
	@rm -rf build/stores
	@for part in s3a hdfs; do \
	  mvn -B -q -f tests/stores/pom.xml -P $$part dependency:copy-dependencies -DincludeScope=runtime \
	    -DoutputDirectory=$(CURDIR)/build/stores/$$part || exit 1; \
	done
	@touch $@

tables-env: build/tables/.ready

build/tables/.ready: tests/stores/tables.xml | build/livy/jars/.ready $(READY)
	@rm -rf build/tables
	@mvn -B -q -f tests/stores/tables.xml dependency:copy-dependencies -DincludeScope=runtime \
	  -DoutputDirectory=$(CURDIR)/build/tables/jars
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --target build/tables/python \
	  'deltalake==1.6.6' 'pyiceberg==0.12.0' 'cachetools<8'
	@touch $@

$(STORES)/.ready: | $(READY)
	@echo "setup: making $(STORES) (moto)"
	@$(PYTHON) -m venv --clear $(STORES)
	@$(STORES)/bin/python -m pip install --quiet --disable-pip-version-check 'moto[server]==5.2.5'
	@touch $@

test-slow: stores-env tables-env

clean: stores-clean

stores-clean:
	rm -f $(STORES)/.ready
