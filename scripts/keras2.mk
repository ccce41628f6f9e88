# The oldest Keras that models are trained with: Keras 2 of TensorFlow 2.13, for the ranks of the tests of it.
#
# make keras2-env   builds .venv-keras2, with the Python of .venv: executors and driver must have the same

KERAS2 := .venv-keras2

.PHONY: keras2-env keras2-clean

keras2-env: $(KERAS2)/.ready

$(KERAS2)/.ready: tests/equality/constraints-keras2.txt | $(READY)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info > (3, 12) and "setup: TensorFlow 2.13 is for Python 3.11 or older: make .venv with that")'
	@echo "setup: making $(KERAS2) (TensorFlow 2.13: some minutes the first time)"
	@$(PYTHON) -m venv --clear $(KERAS2)
	@$(KERAS2)/bin/python -m pip install --quiet --disable-pip-version-check -c $< tensorflow-cpu scikit-learn
	@touch $@

test test-slow: keras2-env

clean: keras2-clean

keras2-clean:
	rm -f $(KERAS2)/.ready
