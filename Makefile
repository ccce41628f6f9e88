# make demo   sets everything up, runs notebooks/quickstart.ipynb on an embedded Spark, says where to look
# make test   sets everything up, runs all tests but the slow ones
# make lab    the same environment in JupyterLab

SHELL := /bin/bash
# Where the machine's Node.js is too old, scripts/setup puts one into .venv: that one comes first.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

PYTHON := .venv/bin/python
READY  := .venv/.ready
WIDGET := ddl_magics/dashboard/static/widget.js
PANEL  := ddl_magics/labextension/package.json
# What both are built from; sorted, so that a rename is noticed and the order is not.
SOURCES := $(sort $(wildcard package.json tsconfig.json) $(shell find labextension -type f -not -path '*/node_modules/*' 2>/dev/null))
# Where JupyterLab looks for the panel: the link serves what was built last.
PANEL_LINK := .venv/share/jupyter/labextensions/ddl-magics

# Processes of the tests: each has Spark clusters of its own, and needs a core and 6 GB of memory.
PROCESSES ?= 2

.PHONY: install env widget panel browser demo notebooks test test-quick test-slow test-times chaos mutants lab lint panel-pictures tracking-pictures clean bench-env evidently-env

install: env widget panel browser

env: $(READY)

widget: $(WIDGET)

panel: $(PANEL) env
	@mkdir -p $(dir $(PANEL_LINK))
	@ln -sfn ../../../../ddl_magics/labextension $(PANEL_LINK)

browser: env
	@scripts/setup browser

$(READY): pyproject.toml constraints.txt scripts/setup
	@scripts/setup python
	@touch $@

node_modules/.ready: package.json package-lock.json $(READY)
	@scripts/setup node
	npm ci --no-audit --no-fund
	@touch $@

$(WIDGET): node_modules/.ready $(SOURCES)
	npm run build:widget
	@touch $@

$(PANEL): node_modules/.ready $(SOURCES)
	npm run build:panel
	@touch $@

demo: env widget
	$(PYTHON) scripts/demo.py

# The worked examples, with little data: make notebooks [FULL=1] [NAMES="mnist energy"] [DATA=folder]. STORE=1 keeps what
# they show in notebooks/ and docs/notebooks.md. LIVY=1 runs their twins for sparkmagic's kernel on a Livy of this machine,
# LIVY=http://HOST:PORT on another one.
notebooks: env widget $(if $(LIVY),.venv-notebook/.ready) $(if $(filter 1,$(LIVY)),livy)
	$(PYTHON) scripts/$(if $(LIVY),livy_twin.py --run $(if $(filter-out 1,$(LIVY)),--url $(LIVY)),notebooks.py) $(NAMES) \
	  $(if $(FULL),--full) $(if $(STORE),--store) $(if $(DATA),--data $(DATA))

lint: env node_modules/.ready
	npm run lint
	.venv/bin/ruff check --no-cache .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

# Spark's classes as Java maps them: each Spark of the tests starts in half of the time.
build/spark.jsa: $(READY) tests/support/spark_archive.py
	@echo "setup: writing an archive of Spark's Java classes for the tests (half a minute)"
	@PYTHONPATH=tests $(PYTHON) -m support.spark_archive

test: install lint build/spark.jsa
	npm test
	$(PYTHON) -m pytest -m "not slow" -n $(PROCESSES) --dist loadscope --repeat-failed=5 --durations=60

# What the tests of the last `pytest` have cost, the longest first.
test-times:
	@$(PYTHON) scripts/test_times.py

test-quick: env
	$(PYTHON) -m pytest -n $(PROCESSES) --dist loadscope -m "not slow and not browser and not spark and not ranks and not livy and not keras2" --ignore=tests/project/test_wheel.py --ignore=tests/serving/test_serving.py --ignore=tests/runtime/training/test_checkpointing.py

# All, or those of the rooms that a change touches: make test-slow FILES="tests/equality tests/browser".
test-slow: install build/spark.jsa
	$(PYTHON) -m pytest -m slow $(FILES)

# Runs with a fault each, as root: make chaos [SEED=n] [COUNT=n] [FAULTS=name or regular expression]. The head of
# tests/chaos/campaign.py says more.
chaos: env build/spark.jsa
	PYTHONPATH=$(CURDIR):$(CURDIR)/tests $(PYTHON) -m chaos.campaign $(if $(SEED),--seed $(SEED)) \
	  $(if $(COUNT),--count $(COUNT)) $(if $(FAULTS),--faults "$(FAULTS)")

# Small defects planted in the rooms that must never break: make mutants [ROOM=name] [COUNT=n] [SEED=n] [QUICK=1] [AGAIN=1].
# The head of scripts/mutants.py says more.
mutants: env build/spark.jsa
	$(PYTHON) scripts/mutants.py $(if $(ROOM),--room $(ROOM)) $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(QUICK),--quick) $(if $(AGAIN),--again)

# The screenshots of docs/panel.md.
panel-pictures: install
	$(PYTHON) scripts/panel_screenshots.py

# The pictures of TensorBoard and MLflow in docs/history.md.
tracking-pictures: install mlflow-env
	$(PYTHON) scripts/tracking_pictures.py

# What benchmarks compare with and nothing else needs: PyTorch, tf_keras, Hugging Face datasets and KerasTuner, some
# gigabytes; and Petastorm, which wants an old pyarrow.
bench-env: .venv-bench/.ready .venv-petastorm/.ready

.venv-bench/.ready:
	python3 -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet numpy==2.4.6 torch==2.15.0 tensorflow-cpu==2.21.0 tf_keras==2.21.0 \
	  datasets==5.2.0 keras-tuner==1.4.8 scikit-learn==1.9.1 tensorboard==2.21.0
	@touch $@

.venv-petastorm/.ready:
	python3 -m venv .venv-petastorm
	.venv-petastorm/bin/python -m pip install --quiet petastorm==0.13.1 pyarrow==14.0.2 'numpy<1.27'
	@touch $@

# What benchmarks.monitoring compares with: Evidently, which needs another plotly than this package.
evidently-env: .venv-evidently/.ready

.venv-evidently/.ready:
	python3 -m venv .venv-evidently
	.venv-evidently/bin/python -m pip install --quiet evidently==0.7.23 'pandas<3'
	@touch $@

lab: env widget panel
	.venv/bin/jupyter lab --notebook-dir=notebooks $(if $(filter 0,$(shell id -u)),--allow-root)

clean:
	rm -rf build dist node_modules ddl_magics/dashboard/static ddl_magics/labextension .mypy_cache .pytest_cache .ruff_cache *.egg-info
	rm -f $(READY)

include scripts/livy.mk
include scripts/kafka.mk
include scripts/keras2.mk
include scripts/serve.mk
include scripts/docs.mk
include scripts/mlflow.mk
include scripts/stores.mk
include scripts/yarn.mk
include scripts/release.mk
