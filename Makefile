# Each target sets up what it needs by itself (scripts/setup.sh: quick when nothing changed).
SHELL := /bin/bash
PY := .venv/bin/python
SETUP := scripts/setup.sh

# make conformance PROVIDER=wasm|webgpu WHERE=native|chromium JOBS=2 ARGS="--filter softmax"
PROVIDER ?= wasm
WHERE ?= native
JOBS ?= 2
SHARD ?= 1/1
ARGS ?=

.PHONY: help demo serve quick test test-native test-pages test-all check bench conformance fuzz projects docs package release released clean
.DEFAULT_GOAL := help

unexport PYTHONDONTWRITEBYTECODE # tests start hundreds of Python processes: each would compile the engine anew

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 14

demo: ## run two models natively and in headless Chromium, print results and times
	@$(SETUP) python node vulkan browser
	@npm run --silent build
	@$(PY) -m demo $(ARGS)

serve: ## the demo site on a local port
	@$(SETUP) python node
	@$(PY) -m scripts.site_models --download
	@npm run --silent build
	@.venv/bin/pyruntime serve $(ARGS)

check: ## lint, format, types, house rules: seconds
	@$(SETUP) python node
	@.venv/bin/ruff check --quiet --output-format concise . || { echo "check: .venv/bin/ruff check --fix mends those with [*]" >&2; exit 1; }
	@.venv/bin/ruff format --check --quiet . || { echo "check: run .venv/bin/ruff format" >&2; exit 1; }
	@$(PY) -m mypy --no-error-summary
	@if [ -f tsconfig.json ]; then npm run --silent check; fi
	@$(PY) -m pytest -q tests/test_house.py

quick: check ## after each change: check, and the first case of every test that is not slow; a minute
	@$(SETUP) python node vulkan
	@$(PY) -m pytest -q -n $(JOBS) -p tests.quick --ignore tests/test_house.py tests

test: test-native test-pages ## before each push: check, native tests, browser tests; a case of each foreign program
	@$(PY) -m kit.durations

test-native: check
	@$(SETUP) python node vulkan compiler
	@$(PY) -m pytest -q -n $(JOBS) --dist worksteal -m "not alone" --later no --ignore tests/test_house.py tests
	@$(PY) -m pytest -q -m alone --later no tests || [ $$? = 5 ] # 5: there is none

test-pages:
	@$(SETUP) python node vulkan browser web_programs browsers
	@$(PY) -m pytest -q -n $(JOBS) --dist worksteal -m "not alone" --later no --shard $(SHARD) e2e
	@$(PY) -m pytest -q -m alone --later no --shard $(SHARD) e2e || [ $$? = 5 ]

test-all: check ## each night and before a release: all tests, of other programs, frameworks and browsers too
	@$(SETUP) python node vulkan compiler browser programs web_programs browsers runtimes serving docs
	@$(PY) -m pytest -q -n $(JOBS) --dist worksteal -m "not alone" --ignore tests/test_house.py tests
	@for code in avx2 off; do PYRUNTIME_NATIVE_CODE=$$code $(PY) -m pytest -q -n $(JOBS) --dist worksteal tests/ops tests/test_models.py tests/test_conformance.py || exit 1; done
	@$(PY) -m pytest -q -n $(JOBS) --dist worksteal -m "not alone" e2e
	@$(PY) -m pytest -q -m alone tests e2e
	@$(PY) -m kit.durations

bench: ## side by side with peers, as ratios
	@$(SETUP) python node vulkan browser
	@$(PY) -m bench $(ARGS)

conformance: ## the official ONNX backend suite (PROVIDER=wasm|webgpu WHERE=native|chromium)
	@$(SETUP) python node vulkan browser
	@if [ $(WHERE) = chromium ]; then npm run --silent build; fi
	@$(PY) -m kit.conformance --provider $(PROVIDER) --where $(WHERE) --jobs $(JOBS) $(ARGS)

fuzz: ## cases at random against peers and ourselves (ARGS="--seconds S --targets a,b --seed N --case T/N --pages")
	@$(SETUP) python vulkan
	@$(PY) -m fuzz $(ARGS)

projects: ## projects of bundlers, frameworks and test runners from npm (ARGS="NAME ...")
	@$(SETUP) python node browser
	@npm run --silent build
	@$(PY) -m e2e.projects $(ARGS)

docs: ## the documentation as a site, in build/docs
	@$(SETUP) python node docs
	@$(PY) -m scripts.docs_site

package: ## the packages for npm and pip, in build/package
	@$(SETUP) python node
	@npm run --silent build
	@rm -rf build/package && mkdir -p build/package
	@npm pack --silent --pack-destination build/package >/dev/null
	@mv build/package/*.tgz build/package/pyruntime.tgz && cp dist/*.whl build/package && ls build/package/*

release: ## the packages for PyPI and npm, built twice and checked, in build/release
	@$(SETUP) python node release
	@PYTHONPATH=build/release-tools $(PY) -m scripts.release

released: ## what `make release` built, installed into empty projects
	@$(SETUP) python browser
	@$(PY) -m e2e.released

clean: ## remove what was built; keeps .venv and node_modules
	@rm -rf build dist *.egg-info
