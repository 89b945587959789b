# Everything runs in the repository's own environment, .venv, made on first use from requirements.txt.
# Needs Python >= 3.11, make and a network. On a fresh machine: `make book`, then `make test`.

PYTHON ?= python3
JOBS ?= 2

# Workers share the cores; threads inside linear algebra would only fight over them.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

# Paths are relative, and Python starts every program: a checkout may lie in a path with spaces, which the first line of
# an installed script does not bear.
PY := .venv/bin/python
INSTALLED := .venv/.installed
STUDIES := $(wildcard book/*/*.py)
LINTED := dpbook tests tools course conftest.py $(wildcard benchmarks) $(STUDIES)
PAGE := _build/html/index.html
CORE := validation records schema noise budget release priors sampling posterior preview
QUICK := $(patsubst %,tests/test_%.py,walks wall layout package $(CORE)) tests/book/test_docstrings.py tests/expfam/test_expfam_families.py

.PHONY: help book test quick lint test-unit test-notebooks test-book test-browser course test-course epub nightly notebooks lock clean

help:
	@echo "make book       build the book (and the environment, on first use); prints the page to open"
	@echo "make test       lint, unit tests and doctests, every notebook re-executed and compared, strict book build, every page in a browser"
	@echo "make quick      lint, the core, the rules and a walk through each package, in under two minutes: before every commit"
	@echo "make course     write the notebooks of a course, for students and for instructors, to _build/course"
	@echo "make epub       write the book as one file for e-readers, with real mathematics, and check it: _build/epub/dpbook.epub"
	@echo "make nightly    the e-book; every page at six widths, light and dark; every notebook on another processor"
	@echo "make notebooks  bring the executed notebooks up to date with their text (FORCE=1: execute all of them)"
	@echo "make lint       ruff, formatting, types, spelling"
	@echo "make lock       pin the newest versions that fit pyproject.toml in requirements.txt"
	@echo "make clean      remove what was built; the environment too with ALL=1"

book: test-book
	@echo
	@echo "The book is built. Open this page in a browser:"
	@echo
	@$(PY) -c 'import pathlib; print("   ", pathlib.Path("$(PAGE)").resolve().as_uri())'
	@echo

test: lint test-unit test-notebooks test-browser test-course
	@echo "All checks passed."

lint: $(INSTALLED)
	$(PY) -m ruff check $(LINTED)
	$(PY) -m ruff format --check $(LINTED)
	$(PY) -m mypy
	$(PY) -m mypy --ignore-missing-imports --untyped-calls-exclude=nbformat tools course conftest.py tests/book tests/course tests/test_readme.py
	@for folder in $(sort $(dir $(STUDIES))); do MYPYPATH=$$folder $(PY) -m mypy $$folder*.py || exit 1; done
	$(PY) -m codespell_lib $(LINTED) book README.md

# What is quick, and looks at everything a little: the core, the rules, a walk through each package.
quick: lint
	$(PY) -m pytest -q -x -n $(JOBS) --dist loadfile $(QUICK)

test-unit: $(INSTALLED)
	$(PY) -m pytest -q -n $(JOBS) --dist loadfile --doctest-modules --ignore tests/browser --ignore tests/course/built tests dpbook

# Two gates: the notebooks are what their text says, and running them again gives the outputs that are stored.
test-notebooks: $(INSTALLED)
	$(PY) tools/notebooks.py --check
	$(PY) -m pytest -q -n $(JOBS) --dist loadfile --nbval --nbval-current-env book

# --all: Sphinx does not repeat the warnings of pages that it read in an earlier run.
test-book: $(INSTALLED)
	$(PY) -c 'from jupyter_book.cli.main import main; main()' build . --all -W -n --keep-going -q

# Every page as a reader sees it; skipped with a message where there is no Chromium (DPBOOK_BROWSER=1: then it fails).
test-browser: test-book
	$(PY) -m pytest -q -rs -n $(JOBS) tests/browser

course: $(INSTALLED)
	$(PY) tools/course.py

# The notebooks of the course, from the wheel, in an environment of their own; they also prove that shown code is complete.
test-course: test-book course
	$(PY) -m pytest -q -n $(JOBS) tests/course/built

# Formulas are compared one by one with what MathJax makes of them, where there is a Chromium.
epub: $(INSTALLED)
	$(PY) tools/epub.py
	$(PY) -m pytest -q -rs tests/book/test_epub.py tests/browser/test_epub_formulas.py

nightly: test-book epub
	DPBOOK_ALL_WIDTHS=1 $(PY) -m pytest -q -rs -n $(JOBS) tests/browser
	DPBOOK_ALL_SECTIONS=1 $(PY) -m pytest -q -n $(JOBS) tests/book/test_processors.py

notebooks: $(INSTALLED)
	$(PY) tools/notebooks.py -j $(JOBS) $(if $(FORCE),--force)

lock: $(INSTALLED)
	$(PY) -m uv pip compile -q --universal --python-version 3.11 --upgrade pyproject.toml \
	  --extra book --extra test --extra scale --extra pymc --extra sklearn --extra formula --extra dpsgd --extra browser --constraints constraints.txt \
	  --no-annotate --no-header --no-emit-index-url --no-emit-find-links --output-file requirements.txt

clean:
	rm -rf _build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis $(if $(ALL),.venv)
	find . -path ./.venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment whose Python does not start is made again, also when it was complete once.
.PHONY: broken
BROKEN = $(if $(shell $(PY) -c 'print(1)' 2>/dev/null),,broken)

# uv comes from PyPI and installs in seconds; without compiled bytecode every first import would be slow.
$(INSTALLED): requirements.txt pyproject.toml $(BROKEN)
	@$(PY) -c '' 2>/dev/null || "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "dpbook needs Python 3.11 or newer, and $(PYTHON) is not. Name one: make PYTHON=python3.12 ..."; exit 1; }
	@$(PY) -c '' 2>/dev/null || "$(PYTHON)" -m venv --clear .venv || \
	  { echo "$(PYTHON) cannot make an environment; on Debian and Ubuntu install the package python3-venv"; exit 1; }
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "the environment .venv has a Python older than 3.11. Remove it: make clean ALL=1"; exit 1; }
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PY) -m ensurepip >/dev/null 2>&1 || \
	  { echo "the environment .venv has no pip and cannot get one. Remove it: make clean ALL=1. On Debian and Ubuntu" \
	    "install the package python3-venv first"; exit 1; }
	$(PY) -m pip install --quiet --disable-pip-version-check uv
	$(PY) -m uv pip install --quiet --python $(PY) --compile-bytecode -r requirements.txt
	$(PY) -m uv pip install --quiet --python $(PY) --no-deps --editable .
	@touch $@
