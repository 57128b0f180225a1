# Two commands for newcomers: `make demo` and `make test`. Both create what they need.
PYTHON ?= python3
VENV ?= .venv
PAGES ?= .venv-doc
OLD ?= .venv-oldest
EMPTY ?= .venv-empty
JOBS ?= 2
FOLDERS ?= tests
RESULTS ?= gpu.jsonl
DURATIONS ?= 20
export PYTHON
BIN = $(if $(filter Windows_NT,$(OS)),Scripts,bin)
UV = .ci/uv
INSTALL = $(UV) pip install --quiet --build-constraint constraints.txt --constraint

.PHONY: demo test coverage lint test-oldest doc site dist smoke gpu clean

demo: $(VENV)/.demo ## train a small network, score, tune a reject option, report
	$(VENV)/$(BIN)/python -m skood

test: $(VENV)/.test ## the tests that are not slow
	$(VENV)/$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not slow" --durations=$(DURATIONS)

coverage: $(VENV)/.test ## all tests, and the lines and branches they run
	$(VENV)/$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --cov --cov-report=term

lint: $(VENV)/.test ## style and types
	$(VENV)/$(BIN)/ruff check .
	$(VENV)/$(BIN)/ruff format --check .
	$(VENV)/$(BIN)/mypy

test-oldest: $(OLD)/.test ## the tests of FOLDERS that are not slow, with the oldest dependencies
	$(OLD)/$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not slow" -o addopts="--strict-markers -rfEs --import-mode=importlib" $(FOLDERS)

doc: $(PAGES)/.doc ## the pages, without running the gallery; a warning is an error
	$(PAGES)/$(BIN)/sphinx-build -W --keep-going -q -j $(JOBS) -D plot_gallery=0 doc doc/_build/pages

site: $(PAGES)/.doc ## the pages, with the whole gallery run; a warning is an error
	$(PAGES)/$(BIN)/sphinx-build -W --keep-going -q doc doc/_build/html

dist: ## dist/*.tar.gz, and dist/*.whl made of it
	rm -rf dist
	$(UV) build --quiet --build-constraint constraints.txt --out-dir dist

smoke: dist ## install the wheel into an empty environment and use it from elsewhere
	$(UV) venv --quiet --clear --python $(PYTHON) $(EMPTY)
	$(INSTALL) constraints.txt --python $(EMPTY) "$$(echo dist/*.whl)[persistence]"
	$(EMPTY)/$(BIN)/python -I .ci/smoke.py

gpu: ## tests and speed on a GPU in ten minutes, by the torch of PYTHON; adds to RESULTS
	PYTHONPATH=".:$$PYTHONPATH" $(PYTHON) benchmarks/gpu.py --out $(RESULTS)

# An environment holds what its targets need and nothing else, so that no target passes
# because of another one. --seed: pip is there for those who want it
$(VENV)/.demo: pyproject.toml constraints.txt
	$(UV) venv --quiet --clear --seed --python $(PYTHON) $(VENV)
	$(INSTALL) constraints.txt --python $(VENV) --editable ".[plot]"
	touch $@

$(VENV)/.test: $(VENV)/.demo
	$(INSTALL) constraints.txt --python $(VENV) --editable ".[plot,test]"
	touch $@

$(PAGES)/.doc: pyproject.toml constraints.txt
	$(UV) venv --quiet --clear --seed --python $(PYTHON) $(PAGES)
	$(INSTALL) constraints.txt --python $(PAGES) --editable ".[plot,test,doc]"
	touch $@

$(OLD)/.test: pyproject.toml constraints-oldest.txt
	$(UV) venv --quiet --clear --seed --python $(PYTHON) $(OLD)
	$(INSTALL) constraints-oldest.txt --python $(OLD) --editable ".[plot,test]"
	touch $@

clean:
	rm -rf $(VENV) $(PAGES) $(OLD) $(EMPTY) .venv-uv dist doc/_build .pytest_cache .mypy_cache .ruff_cache .coverage*
