# `make demo` and `make test` set themselves up: they need Python >= 3.11, make and, for speed, a C++ compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet
SOURCES := pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/uqeval/kernels/native/*.?pp)

.PHONY: demo test test-slow test-minimal test-lowest fuzz sanitize soak dist test-wheel messages lint format audit bench \
  validate docs clean FORCE

demo: $(VENV)/.core
	@$(BIN)/uqeval demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto -m "not slow"

# The browser tests need Debian's chromium: installed when it is missing and we may, skipped when it cannot be had.
test-slow: $(VENV)/.dev
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  { timeout 300 apt-get -qq update; DEBIAN_FRONTEND=noninteractive timeout 600 apt-get -qq -y install \
	  --no-install-recommends chromium; } >/dev/null 2>&1; } || echo "No chromium here: the browser tests will be skipped."
	$(BIN)/python -m pytest -n auto --dist worksteal -m "slow and not alone" tests
	$(BIN)/python -m pytest -m alone tests

# Random hostile input: SECONDS each, WHAT="kernels readers guided", SEED. What coverage guides needs atheris.
fuzz: SECONDS ?= 60
fuzz: SEED ?= 0
fuzz: WHAT ?= $(filter kernels readers,$(patsubst fuzz/%.py,%,$(wildcard fuzz/*.py)))
fuzz: $(VENV)/.dev
	@case " $(WHAT) " in *" guided "*) $(PIP) "atheris>=3; python_version < '3.14'";; esac
	@for what in $(WHAT); do nice $(BIN)/python -m fuzz $$what --seconds $(SECONDS) --seed $(SEED) || exit 1; done

# What is published: the sources, and the wheels that are built from them, with native kernels and without.
dist: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m build --sdist --outdir dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist dist/*.tar.gz
	UQEVAL_PURE=1 $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist dist/*.tar.gz
	@ls -l dist

# The suite against a wheel, where the sources cannot be imported. WHEEL=py3 is the one without native kernels. The packages
# of the tests are shared, not the editable uqeval: of a folder that a .pth names nobody reads the .pth files.
WHEEL ?= cp*
test-wheel: dist
	rm -rf build/wheel && $(BIN)/python -m venv build/wheel
	build/wheel/bin/python -m pip install --quiet --no-deps dist/uqeval-*-$(WHEEL)-*.whl
	$(BIN)/python -c 'import sys; print(*[p for p in sys.path if p.endswith("-packages")], sep="\n")' >build/wheel/packages.pth
	mv build/wheel/packages.pth build/wheel/lib/python*/site-packages
	cd build/wheel && bin/uqeval demo && bin/uqeval doctor
	cd build/wheel && $(if $(filter py3,$(WHEEL)),UQEVAL_PURE=1) bin/python -m pytest -c ../../pyproject.toml -n auto -m "not slow" ../../tests

# The suite with no extra but that of the tests, and the newest of what it needs: what `pip install uqeval` gives today.
test-minimal:
	rm -rf build/minimal && $(PYTHON) -m venv build/minimal
	build/minimal/bin/python -m pip install --quiet ".[test]"
	cd build/minimal && bin/python -m pytest -c ../../pyproject.toml -n auto -m "not slow" ../../tests

# The suite with the lowest versions that pyproject.toml allows, where uv finds them. Not torch's: it is gigabytes.
LOWEST := test sklearn dask spark mlflow
test-lowest:
	rm -rf build/lowest && $(PYTHON) -m venv build/lowest
	build/lowest/bin/python -m pip install --quiet uv
	build/lowest/bin/uv pip install --quiet --python build/lowest/bin/python --resolution lowest-direct -r pyproject.toml \
	  $(LOWEST:%=--extra %)
	build/lowest/bin/python -m pip install --quiet --no-deps .
	cd build/lowest && bin/python -m pytest -c ../../pyproject.toml -n auto -m "not slow" ../../tests

# The public functions in several threads: right numbers, and no growth of memory or open files. SECONDS, SEED.
soak: SECONDS ?= 1200
soak: SEED ?= 0
soak: $(VENV)/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 nice $(BIN)/python -m fuzz soak --seconds $(SECONDS) --seed $(SEED)

# The native kernels built with sanitizers, apart in build/sanitize: their tests and a short fuzz. Any finding fails.
sanitize: sanitize-address sanitize-thread
sanitize-address: FLAGS := -fsanitize=address,undefined -fno-sanitize-recover=all
sanitize-address: PRELOAD := libasan.so libubsan.so
sanitize-thread: FLAGS := -fsanitize=thread
sanitize-thread: PRELOAD := libtsan.so
sanitize-%: SECONDS ?= 30
sanitize-%: $(VENV)/.dev
	@mkdir -p build/sanitize && $(BIN)/python -m venv --without-pip build/sanitize/$*
	@$(BIN)/python -c 'import sys; print(*(x for x in sys.path if x.endswith("site-packages")), sep="\n")' > \
	  $$(build/sanitize/$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/needed.pth
	CXXFLAGS="$(FLAGS) -g -fno-omit-frame-pointer" PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
	  $(BIN)/python -m pip --quiet --python build/sanitize/$*/bin/python install --no-deps --force-reinstall . \
	  --config-settings=build-dir=build/sanitize/$*/cmake --config-settings=cmake.build-type=RelWithDebInfo
	$(call sanitized,$*) -m pytest -p no:cacheprovider -m "not slow" tests/kernels
	$(call sanitized,$*) -m fuzz kernels --seconds $(SECONDS)

# Python itself leaks on purpose; libstdc++ must be there before the sanitizer looks for it.
sanitized = UQEVAL_KERNELS=native ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
  TSAN_OPTIONS="halt_on_error=1 suppressions=$(CURDIR)/fuzz/tsan.supp" \
  LD_PRELOAD="$(foreach library,$(PRELOAD) libstdc++.so,$(shell $(or $(CXX),c++) -print-file-name=$(library)))" \
  build/sanitize/$(1)/bin/python

# Every error message that the tests provoke, as one list to read.
messages: $(VENV)/.dev
	@mkdir -p build && rm -f build/messages.txt
	@UQEVAL_MESSAGES=$(CURDIR)/build/messages.txt $(BIN)/python -m pytest -n auto -m "not slow" tests >build/messages.log || \
	  echo "Some tests fail without being asked: build/messages.log"
	@$(BIN)/python tests/messages.py build/messages.txt

lint: $(VENV)/.dev
	$(BIN)/ruff check src tests benchmarks validation fuzz
	$(BIN)/ruff format --check src tests benchmarks validation fuzz
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix src tests benchmarks validation fuzz
	$(BIN)/ruff format src tests benchmarks validation fuzz

# Advisories on what is in .venv, from the package index; what it cannot tell of a package is a failure. torch's "+cpu" is none of
# the index's.
audit: $(VENV)/.core
	@mkdir -p build && test -x build/audit/bin/pip-audit || { $(BIN)/python -m venv build/audit && \
	  build/audit/bin/python -m pip install --quiet pip-audit; }
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+.*//' >build/audit/frozen.txt
	build/audit/bin/pip-audit --strict --vulnerability-service pypi --no-deps --disable-pip -r build/audit/frozen.txt

bench: $(VENV)/.bench
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks

# Hours, resumes by itself; ARGS=--quick takes minutes. The page and the store are in build/validation.
validate: $(VENV)/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 UQEVAL_THREADS=1 $(BIN)/python -m validation $(ARGS)

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "uqeval needs Python >= 3.11; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# An editable install lists the modules there are: install again when one comes or goes.
$(VENV)/.modules: $(VENV)/bin/python FORCE
	@find src -name '*.py' | LC_ALL=C sort | cmp -s - $@ || find src -name '*.py' | LC_ALL=C sort > $@

$(VENV)/.core: $(VENV)/.modules $(SOURCES)
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) --editable ".[dev]"
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) --editable ".[bench]"
	@touch $@

$(VENV)/.docs: $(VENV)/.core
	$(PIP) --editable ".[docs]"
	@touch $@

clean:
	rm -rf $(VENV) build dist docs/_build docs/_made
