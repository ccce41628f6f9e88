# The documentation: pages made from the code, and the site.
#
# make docs              writes the pages that are made from the code, and builds the site into build/site
# make docs-env          builds .venv-docs, which nothing else needs
# make readme-animation  makes the README's moving picture from a run in headless Chromium

DOCS := .venv-docs

.PHONY: docs docs-env docs-clean readme-animation

docs: env docs-env
	PYTHONPATH=$(CURDIR) $(PYTHON) scripts/options_page.py
	PYTHONPATH=$(CURDIR) $(PYTHON) scripts/reference_pages.py
	PYTHONPATH=$(CURDIR) $(PYTHON) scripts/rooms_picture.py
	PYTHONPATH=$(CURDIR) $(PYTHON) scripts/site_pages.py
	$(DOCS)/bin/sphinx-build -W --keep-going -q -c docs build/pages build/site
	@echo "The site: build/site/index.html"

docs-env: $(DOCS)/.ready

$(DOCS)/.ready: scripts/constraints-docs.txt | $(READY)
	$(PYTHON) -m venv --clear $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -c $< sphinx pydata-sphinx-theme myst-parser \
	  sphinx-copybutton ipython-pygments-lexers pillow
	@touch $@

readme-animation: install docs-env
	$(PYTHON) scripts/readme_animation.py record build/animation
	$(DOCS)/bin/python scripts/readme_animation.py assemble build/animation docs/images/live.webp

test: docs-env

clean: docs-clean

docs-clean:
	rm -f $(DOCS)/.ready
