# The tracking server of MLflow for the tests, with its page: the package needs mlflow-skinny at most.
#
# make mlflow-env   builds .venv-mlflow, which nothing else needs

MLFLOW := .venv-mlflow

.PHONY: mlflow-env mlflow-clean

mlflow-env: $(MLFLOW)/.ready

$(MLFLOW)/.ready: scripts/constraints-mlflow.txt | $(READY)
	@echo "setup: making $(MLFLOW) (MLflow with its server: some minutes the first time)"
	@$(PYTHON) -m venv --clear $(MLFLOW)
	@$(MLFLOW)/bin/python -m pip install --quiet --disable-pip-version-check -c $< mlflow
	@touch $@

test-slow: mlflow-env

clean: mlflow-clean

mlflow-clean:
	rm -f $(MLFLOW)/.ready
