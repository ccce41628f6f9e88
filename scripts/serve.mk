# MLServer in an environment of its own, as `%ddl serve` makes one: for the tests, and for trying things out.
#
# make serve-env        builds .venv-serve
# make serve-bench-env  builds .venv-serve-bench, which has MLServer's own MLflow runtime, too: benchmarks/serving.py

SERVE := .venv-serve
SERVE_BENCH := .venv-serve-bench
SERVE_PINS := ddl_magics/serving/constraints.txt

.PHONY: serve-env serve-bench-env serve-clean

serve-env: $(SERVE)/.ready

$(SERVE)/.ready: $(SERVE_PINS) | $(READY)
	@echo "setup: making $(SERVE) (MLServer and TensorFlow: a minute the first time)"
	@$(PYTHON) -m venv --clear $(SERVE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' && pins="-c $(SERVE_PINS)"; \
	  $(SERVE)/bin/python -m pip install --quiet --disable-pip-version-check $$pins \
	  $$(grep -E '^(mlserver|keras|tensorflow[-_]cpu|confluent-kafka)==' $(SERVE_PINS))
	@touch $@

serve-bench-env: $(SERVE_BENCH)/.ready

# mlserver-mlflow asks for all of MLflow, and needs mlflow-skinny.
$(SERVE_BENCH)/.ready: $(SERVE_PINS) | $(READY)
	@$(PYTHON) -m venv --clear $(SERVE_BENCH)
	@$(SERVE_BENCH)/bin/python -m pip install --quiet --disable-pip-version-check -c $(SERVE_PINS) mlserver tensorflow-cpu \
	  keras mlflow-skinny==3.17.2 pandas
	@$(SERVE_BENCH)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps mlserver-mlflow==1.7.1
	@touch $@

test test-slow notebooks: serve-env

clean: serve-clean

serve-clean:
	rm -f $(SERVE)/.ready $(SERVE_BENCH)/.ready
