# Both targets do all their own set-up on a fresh machine with Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A GPU needs torch's CUDA build, as its index serves it by default; without one the pinned CPU build is enough.
INSTALLED := $(VENV)/.installed

.PHONY: sweep test lint docs clean

sweep: $(INSTALLED)
	mkdir -p build
	$(BIN)/kaudit sweep smoke --out build/smoke.jsonl
	$(BIN)/kaudit show build/smoke.jsonl

test: $(INSTALLED) lint
	$(BIN)/python -m pytest -m 'not timed' --numprocesses auto --maxprocesses 4 --dist loadfile
	$(BIN)/python -m pytest -m timed

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Writes the generated parts of docs/ anew; make test checks them.
docs: $(INSTALLED)
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/tutorial.py

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build
