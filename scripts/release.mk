# Releases: docs/releasing.md.
#
# make release VERSION=1.2.3   does all but the upload, and prints the command that remains
# make release-env             builds .venv-release, which nothing else needs

RELEASE := .venv-release

.PHONY: release release-env release-clean

release: env widget panel release-env
	@$(PYTHON) scripts/release.py $(VERSION)

release-env: $(RELEASE)/.ready

$(RELEASE)/.ready: scripts/constraints-release.txt | $(READY)
	@$(PYTHON) -m venv --clear $(RELEASE)
	@$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check -c $< build hatchling twine \
	  'readme_renderer[md]' py-rattler-build
	@touch $@

test test-slow: release-env

clean: release-clean

release-clean:
	rm -f $(RELEASE)/.ready
