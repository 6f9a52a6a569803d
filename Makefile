# Two commands: `make demo` does the main job, `make test` passes the tests. Both do all their set-up.
PYTHON ?= python3
SHELL := /bin/bash
.PHONY: docs demo wheels test test-full setup install test-style test-unit test-text test-python test-sweeps check fuzz bench format golden clean

demo: install
	@$$(cat build/python) -m benchmarks.demo

test: install
	BRAZE_PYTHON=$$(cat build/python) tools/test.sh

# And what is drawn at random or listed by PyTorch, in more samples
test-full: install
	BRAZE_PYTHON=$$(cat build/python) tools/test.sh style unit text python sweeps

setup:
	@PYTHON=$(PYTHON) tools/setup.sh

install: setup
	@PYTHON=$$(cat build/python) tools/install.sh

test-style test-unit test-text test-python test-sweeps: install
	BRAZE_PYTHON=$$(cat build/python) tools/test.sh $(@:test-%=%)

# AddressSanitizer, UBSan and ThreadSanitizer, in builds of their own; some of it: make check STEPS="asan-build asan-unit"
check: setup
	BRAZE_PYTHON=$$(cat build/python) tools/check.sh $(STEPS)

# Long runs on seeds of your own: make fuzz ARGS="--first 100000 --count 20000"; of one kind: make fuzz KINDS=world
KINDS ?= tensors effects training world language
fuzz: install
	for kind in $(KINDS); do BRAZE_STRICT=1 BRAZE_VERIFY=1 $$(cat build/python) tests/fuzz/$$kind.py $(ARGS) || exit 1; done

bench: install
	@$$(cat build/python) -m benchmarks.run $(ARGS)

# Wheels for each CPython here, each with extensions for several PyTorchs, in build/wheels/out: docs/install.md
wheels:
	@tools/wheels.sh

# The documentation site, links checked: build/docs/site/index.html; make docs ARGS=serve shows it while you write
docs:
	@$(PYTHON) tools/docs.py $(ARGS)

format: setup
	@BRAZE_PYTHON=$$(cat build/python) tools/style.sh --mend

# Golden texts as braze-opt prints them now; some of them: make golden FILES=tests/filetests/passes/cse.graph
golden: install
	@$$(cat build/python) tools/update_golden.py $(FILES)

clean:
	rm -rf build
