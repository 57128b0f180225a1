# Two commands for newcomers: `make demo` and `make test`. Both create what they need.
PYTHON ?= python3
VENV ?= .venv
OLD ?= .venv-oldest
JOBS ?= 2
PIP = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test lint test-oldest clean

demo: $(VENV)/.demo ## train a small network, score, tune a reject option, report
	$(VENV)/bin/python -m skood

test: $(VENV)/.test ## the whole test suite, with coverage
	$(VENV)/bin/python -m pytest -n $(JOBS) --dist worksteal --cov --cov-report=term --durations=20

lint: $(VENV)/.test ## style and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

test-oldest: $(OLD)/.test ## the fast part of the suite with the oldest dependencies
	$(OLD)/bin/python -m pytest -n $(JOBS) --dist worksteal -m "not slow" -o addopts="--strict-markers -rfEs --import-mode=importlib" tests

# torch goes first: pinned, so that nothing else pulls in another build of it
$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --constraint constraints.txt torch
	$(PIP) --constraint constraints.txt --editable ".[plot,progress]"
	touch $@

$(VENV)/.test: $(VENV)/.demo
	$(PIP) --constraint constraints.txt --editable ".[plot,progress,test]"
	touch $@

$(OLD)/.test: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv $(OLD)
	$(OLD)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-oldest.txt torch
	$(OLD)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-oldest.txt --editable ".[plot,progress,test]"
	touch $@

clean:
	rm -rf $(VENV) $(OLD) .pytest_cache .mypy_cache .ruff_cache .coverage*
