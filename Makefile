# Needs Python 3.10 to 3.14, make and PyPI; no CUDA toolkit, no host compiler, no GPU.
# Everything is installed into .venv, once; `make clean` removes it.

VENV    ?= .venv
CONSTRAINTS ?= constraints.txt
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
TORCH   ?= $(shell sed -n 's/^torch==//p' constraints.txt)
# A CPU-only torch, where the machine's index does not have one:
#     make TORCH_INDEX=https://download.pytorch.org/whl/cpu test
TORCH_INDEX ?=
# Two workers of pytest; all tests of a file run in one of them, which makes once what they share.
# PYTEST_FLAGS= for one process, PYTEST_FLAGS="-k name" for one test.
PYTEST_FLAGS ?= -n 2 --dist loadfile

# The compiler of CUDA Tile C++ has an NVRTC of its own, which cannot stand beside the one that torch pins.
TILE  := $(VENV)/share/dotcu/tile

# Triton, beside a torch that does not bring it: only the tests of Triton kernels see it.
TRITON := $(VENV)/share/dotcu/triton

# Numba with its CUDA compiler, and cuTile Python; likewise. Numba looks for its compiler in $(VENV) and CUDA_HOME.
LANGUAGES := $(VENV)/share/dotcu/languages

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
CORE_TESTS := $(addprefix tests/unit/,compile kernel ptx operator checking test_house.py test_public_names.py)

TRITON_TESTS := tests/unit/kernel/languages tests/unit/sanitizing tests/unit/cli/test_sanitize.py \
	tests/test_docs.py

CUDA_FILES = $(shell find src tests $(wildcard examples) benchmarks -name '*.cu' -o -name '*.cuh' | sort)

# The first Python that is new enough, and not too new.
SUPPORTED := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))
ifndef PYTHON
PYTHON := $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do \
	"$$python" -c '$(SUPPORTED)' 2>/dev/null && { echo "$$python"; break; }; done)
endif

# Some images forbid Python to keep what it has compiled. The processes of tests and commands then compile dotcu
# anew, each for most of a second.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test test-torch test-triton test-languages quick test-all check gpu figures counts lint format docs collected clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r name what; do printf '%-18s %s\n' "$$name" "$$what"; done

install: $(STAMP)  ## make .venv and install everything into it

# torch goes first and alone: which build it is must not depend on what else is asked for.
# The native part is made again by ziglang's compiler, which pip has brought by then: the same on every machine.
$(STAMP): pyproject.toml constraints.txt requirements-tile.txt hatch_build.py $(wildcard src/dotcu/native/*)
	@test -n "$(PYTHON)" || { echo "make: no Python 3.10 to 3.14 on PATH; install one, or name it: make PYTHON=/path/to/python3"; exit 3; }
	@echo "make: a virtual environment in $(VENV), with $$($(PYTHON) --version)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "make: installing torch $(TORCH)"
	@$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==$(TORCH)
	@echo "make: installing dotcu and its tools ($(CONSTRAINTS))"
	@$(PIP) -c $(CONSTRAINTS) -e '.[build,dev,tools]'
	@cmp -s requirements-tile.txt $(TILE)/requirements.txt || { rm -rf $(TILE); \
		echo "make: installing the compiler of tile kernels (requirements-tile.txt) into $(TILE)"; \
		$(PIP) --target $(TILE) -r requirements-tile.txt && cp requirements-tile.txt $(TILE)/requirements.txt; }
	@echo "make: compiling dotcu's native part"
	@$(BIN)/python hatch_build.py > /dev/null || true
	@touch $@

demo: $(STAMP)  ## a tour in ten seconds: a race explained by line, an operator checked, its time bound
	@$(BIN)/python examples/demo/demo.py

test: $(STAMP)  ## lint, build the docs, run the quick tests
	@$(MAKE) --no-print-directory -j 2 lint docs collected
	@$(BIN)/python -m pytest $(PYTEST_FLAGS) -m 'not slow'

test-triton: $(STAMP)  ## the tests of Triton kernels, with a Triton of their own (some 200 MB)
	@cmp -s requirements-triton.txt $(TRITON)/requirements.txt || { rm -rf $(TRITON); \
		echo "make: installing Triton (requirements-triton.txt) into $(TRITON)"; \
		$(PIP) --no-deps --target $(TRITON) -r requirements-triton.txt && cp requirements-triton.txt $(TRITON)/requirements.txt; }
	@PYTHONPATH=$(abspath $(TRITON)) $(BIN)/python -m pytest $(PYTEST_FLAGS) -k 'not test_docs or triton.md' $(TRITON_TESTS)

test-languages: $(STAMP)  ## the tests of the kernels of Numba and cuTile Python (some 420 MB)
	@cmp -s requirements-languages.txt $(LANGUAGES)/requirements.txt || { rm -rf $(LANGUAGES); \
		echo "make: installing Numba and cuTile (requirements-languages.txt) into $(LANGUAGES)"; \
		$(PIP) --no-deps --target $(LANGUAGES) -r requirements-languages.txt && \
		cp requirements-languages.txt $(LANGUAGES)/requirements.txt; }
	@PYTHONPATH=$(abspath $(LANGUAGES)) CUDA_HOME=$(abspath $(LANGUAGES))/nvidia/cu13 \
		LD_LIBRARY_PATH=$(abspath $(LANGUAGES))/nvidia/cu13/lib $(BIN)/python -m pytest $(PYTEST_FLAGS) \
		tests/unit/kernel/languages/test_numba_kernels.py tests/unit/kernel/languages/test_cutile_kernels.py

# An environment of its own. A CUDA build of torch pins parts of CUDA, so constraints.txt must not; nor may a
# constraint of pip's own configuration hold back the torch that was asked for.
OWN = .venv-torch-$(TORCH)-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2] + sys.abiflags)' 2> /dev/null)
test-torch:  ## the quick tests with another torch and Python: make test-torch TORCH=2.15.0 PYTHON=python3.13
	@$(PYTHON) -c '' 2> /dev/null || { echo "make: $(PYTHON) does not run; install it, or name another:" \
		"make test-torch TORCH=$(TORCH) PYTHON=/path/to/python3"; exit 3; }
	@mkdir -p $(OWN)
	@grep -vE '^(torch=|nvidia-|cuda-)' constraints.txt > $(OWN)/constraints.txt
	@PIP_CONSTRAINT=/dev/null $(MAKE) --no-print-directory VENV=$(OWN) CONSTRAINTS=$(OWN)/constraints.txt install
	@$(OWN)/bin/python -m pytest $(PYTEST_FLAGS) -m 'not slow'

quick: $(STAMP)  ## ruff and the core's tests, for after an edit
	@$(BIN)/ruff check --quiet .
	@$(BIN)/python -m pytest $(PYTEST_FLAGS) -m 'not slow' $(CORE_TESTS)

test-all: $(STAMP)  ## every test, the slow ones and a clean installation of the wheel too
	@$(MAKE) --no-print-directory -j 2 lint docs collected
	@$(BIN)/python -m pytest $(PYTEST_FLAGS)

check: $(STAMP)  ## check every operator of the gallery: on the GPU, else in the simulator (minutes)
	@$(BIN)/dotcu check dotcu.gallery --quick

gpu: $(STAMP)  ## what only a GPU can show: its tests, and the gallery's full check
	@$(BIN)/python -m pytest -p no:benchmark $(PYTEST_FLAGS) tests/gpu tests/gallery tests/unit/include \
		tests/wrong/test_gpu.py tests/wrong/test_bench.py
	@$(BIN)/dotcu check dotcu.gallery --full

figures: $(STAMP)  ## measure on an H200 what calls and training cost, and write the tables (some 3 minutes)
	@for name in call_overhead gallery_calls training; do \
		$(BIN)/python benchmarks/$$name.py --save benchmarks/results/$${name}_h200.json || \
			test $$? -eq 1 || exit 3; done  # 1: a goal was missed
	@$(BIN)/python benchmarks/import_count.py
	@$(BIN)/python benchmarks/call_tables.py

counts: $(STAMP)  ## how large the code and the docs are: files, lines, classes, duplicate names, pages, words
	@$(BIN)/python benchmarks/counts.py

lint: $(STAMP)  ## ruff, mypy, import-linter, clang-format
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check --diff .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports > $(VENV)/lint-imports.log || { cat $(VENV)/lint-imports.log; exit 1; }
	@$(if $(CUDA_FILES),$(BIN)/clang-format --dry-run -Werror $(CUDA_FILES))
	@echo "make: lint holds (ruff, mypy, import-linter, clang-format)"

format: $(STAMP)  ## let ruff and clang-format rewrite what lint would refuse
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .
	@$(if $(CUDA_FILES),$(BIN)/clang-format -i $(CUDA_FILES))

docs: $(STAMP)  ## build the documentation into site/; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "make: the documentation is in site/index.html"

# pytest rewrites the assertions of a file that it has not read before. In a fresh clone that takes each worker
# 15 s; here it is done beside mypy, which has a core to itself. What cannot be read is reported by the tests.
collected: $(STAMP)
	@$(BIN)/python -m pytest --collect-only --quiet > $(VENV)/collected.log 2>&1 || true

clean:  ## remove what make made
	@rm -rf $(VENV) .venv-torch-* site dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find src tests $(wildcard examples) benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
