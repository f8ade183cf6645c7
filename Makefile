# Thin: deploy/bootstrap installs, CMake presets build, ctest tests. `make` alone lists the targets.
PRESET ?= release
BUILD := $(if $(filter release,$(PRESET)),build,build-$(PRESET))
JOBS ?= $(shell nproc)
# Tests wait for deadlines and processes much of the time, so more of them run than there are cores.
TEST_JOBS ?= $(shell expr $(shell nproc) + 1)
UNIT_JOBS ?= $(shell expr $(shell nproc) + 8)
BOOTSTRAP_FLAGS ?=
NOW = $(shell date +%Y%m%d-%H%M%S)
PICTURES = $$(deploy/bootstrap --prefix)/bin/python examples/pictures.py
SOURCES = $(shell git ls-files '*.h' '*.cc' '*.cu')
# With a line of progress: how much of the build is done, and after how many seconds.
COMPILE = NINJA_STATUS='[%p of %t steps, %e s] ' cmake --build $(BUILD) --parallel $(JOBS)

.PHONY: help build programs training_programs train classifier cyclegan language_model recommender tensorboard test fuzz soak format \
  format-check clean bootstrap bootstrap-test

define HELP
Each target installs and builds what it needs.

  make train             train a convnet on Fashion-MNIST: chief, worker and evaluator on this host
  make classifier        fine-tune an image classifier on pictures that it draws
  make cyclegan          train a CycleGAN on pictures that it draws
  make language_model    train a GPT, and let it continue a sentence
  make recommender       train a recommender on generated clicks
  make tensorboard       show the curves of all runs below runs/

  make programs          build the programs
  make build             build the programs and the tests
  make test              build and run all tests
  make test-unit         build and run the unit tests that take no seconds each, or one: UNIT_TEST=director_test
  make test-asan         those that need no LibTorch, and train_test, with AddressSanitizer and UndefinedBehaviorSanitizer
  make fuzz              fuzz each parser of untrusted bytes for ten minutes: MINUTES=, TARGETS=
  make soak              disturb training at random, 40 minutes: SEED=
  make nightly           sanitizers, debug, no LibTorch, soak, fuzzing, coverage: hours; MINUTES=, STEPS=
  make coverage          lines that the tests run, by folder
  make wheel             a wheel for pip, in build/packages: programs and libraries, LibTorch by its dependency torch
  make deb               a package for apt, in build/packages: programs, LibTorch for CPUs, the systemd unit
  make bench             run all benchmarks, or one: BENCH=identity, FLAGS=--quick
  make image             build the container image: IMAGE=muster, DEVICES=cuda, ENGINE=docker
  make test-roots        a bundle and the image in empty roots of Debian and Ubuntu: root, an hour

  make format            format the sources; make format-check compares
  make tidy              clang-tidy on what was changed: SINCE=main; make hooks checks each commit
  make bootstrap         install what the programs need; make bootstrap-test also what the tests need
  make clean             remove all build folders

JOBS=2 sets the number of compilers, PRESET=debug one of CMakePresets.json, BOOTSTRAP_FLAGS=--yes installs without a question.
endef
export HELP

help:
	@echo "$$HELP"

bootstrap:
	@deploy/bootstrap $(BOOTSTRAP_FLAGS)

bootstrap-test:
	@deploy/bootstrap --test $(BOOTSTRAP_FLAGS)

# Without the tests, which need more to be installed. A folder that has them keeps them.
$(BUILD)/build.ninja: | bootstrap
	@echo "configuring and building Muster: on two cores 20 to 40 minutes the first time"
	@cmake --preset $(PRESET) --log-level=WARNING -DBUILD_TESTING=OFF >/dev/null

$(BUILD)/tests/CTestTestfile.cmake: | bootstrap-test
	@echo "configuring and building Muster and its tests: on two cores 40 to 80 minutes the first time"
	@cmake --preset $(PRESET) --log-level=WARNING -DBUILD_TESTING=ON >/dev/null

build: bootstrap-test $(BUILD)/tests/CTestTestfile.cmake
	@$(COMPILE)

programs: bootstrap $(BUILD)/build.ninja
	@$(COMPILE) --target muster muster-bundle muster-chief muster-worker muster-ps muster-evaluator muster-tool

# Without muster-tool, whose commands are for models that have been trained.
training_programs: bootstrap $(BUILD)/build.ninja
	@$(COMPILE) --target muster muster-chief muster-worker muster-ps muster-evaluator

# One member on each GPU of this host, or a chief and a worker on its CPU; and an evaluator. In a fresh folder.
train: RUN := runs/fashion_mnist-$(NOW)
train: training_programs
	@$(BUILD)/bin/muster launch --workers auto --evaluator --job examples/fashion_mnist.json --set model_dir=$(RUN)
	@echo "curves of all runs in TensorBoard: make tensorboard, then open http://localhost:6006"

# The other examples, a chief and a worker each. What they train on is made where it is missing.
classifier: RUN := runs/image_classifier-$(NOW)
classifier: programs runs/pictures/photos runs/image_classifier_base/weights.safetensors
	@$(BUILD)/bin/muster launch --workers 1 --job examples/image_classifier.json --set model_dir=$(RUN)

cyclegan: RUN := runs/cyclegan-$(NOW)
cyclegan: training_programs runs/pictures/domains
	@$(BUILD)/bin/muster launch --workers 1 --job examples/cyclegan.json --set model_dir=$(RUN)

language_model: RUN := runs/language_model-$(NOW)
language_model: programs
	@$(BUILD)/bin/muster launch --workers 1 --job examples/language_model.json --set model_dir=$(RUN)
	@$(BUILD)/bin/muster predict --job examples/language_model.json --set model_dir=$(RUN) --checkpoint best --prompt "The return statement" \
	  --output $(RUN)/text.npy

recommender: RUN := runs/recommender-$(NOW)
recommender: training_programs
	@$(BUILD)/bin/muster launch --workers 1 --job examples/recommender.json --set model_dir=$(RUN)

runs/pictures/photos: | bootstrap
	@mkdir -p runs/pictures
	@$(PICTURES) photos $@.part && mv $@.part $@

runs/pictures/base: | bootstrap
	@mkdir -p runs/pictures
	@$(PICTURES) photos $@.part --classes boats,houses,mushrooms,trees && mv $@.part $@

runs/pictures/domains: | bootstrap
	@mkdir -p runs/pictures
	@$(PICTURES) domains $@.part && mv $@.part $@

# An interrupted run continues where it was.
runs/image_classifier_base/weights.safetensors: | programs runs/pictures/base
	@$(BUILD)/bin/muster launch --workers 1 --job examples/image_classifier_base.json
	@$(BUILD)/bin/muster export --checkpoint runs/image_classifier_base/checkpoints/best --output $@

tensorboard: bootstrap
	@exec $$(deploy/bootstrap --prefix)/bin/tensorboard --logdir runs --port 6006

test: build
	@ctest --test-dir $(BUILD) -j$(TEST_JOBS) --output-on-failure

# Without the cases that wait for seconds by nature (docs/testing.md#labels). More than two for each core: they wait most of the time.
UNIT_TEST ?=
.PHONY: build-unit test-unit
build-unit: bootstrap-test $(BUILD)/tests/CTestTestfile.cmake
	@$(COMPILE) --target $(or $(UNIT_TEST),unit_tests)

test-unit: build-unit
	@ctest --test-dir $(BUILD) --no-tests=error -L '^unit$$' -LE '^slow$$' $(UNIT_TEST:%=-R '^unit[.]%([.]|$$)') -j$(UNIT_JOBS) --output-on-failure

# Errors of memory and undefined behaviour: the unit tests that need no LibTorch, and one that does.
.PHONY: build-asan test-asan
build-asan test-asan: %-asan:
	@$(MAKE) --no-print-directory $*-unit PRESET=asan_torch UNIT_TEST=train_test
	@$(MAKE) --no-print-directory $*-unit PRESET=asan

# Each parser of what comes from outside, for so many minutes (docs/fuzzing.md). All are run, also where one finds something.
MINUTES ?= 10
TARGETS ?= $(patsubst %_fuzz.cc,%,$(notdir $(sort $(wildcard tests/fuzz/*/*_fuzz.cc))))
fuzz: bootstrap-test
	@test -f build-fuzz/build.ninja || cmake --preset fuzz --log-level=WARNING >/dev/null
	@cmake --build build-fuzz --parallel $(JOBS) --target $(TARGETS:%=fuzz_%)
	@found=; for name in $(TARGETS); do \
	  mkdir -p build-fuzz/fuzz/$$name; echo "$$name: $(MINUTES) minutes"; \
	  (cd build-fuzz/fuzz/$$name && ../../tests/fuzz_$$name -max_total_time=$$(($(MINUTES) * 60)) -max_len=16384 -rss_limit_mb=2048 -print_final_stats=1 \
	    . ../../../tests/fuzz/corpus/$$name >../$$name.log 2>&1 && grep -h number_of_executed_units ../$$name.log) || { found="$$found $$name"; tail -40 build-fuzz/fuzz/$$name.log; }; \
	done; test -z "$$found" || { echo "found something:$$found"; exit 1; }

# A hundred random faults in one run of each of three programs, the same under muster launch, forty of an elastic job, and a hundred of a
# job with parameter servers with one copy and with two: some forty minutes. SEED=... repeats one.
soak: build
	@for kind in "" --launched --elastic; do MUSTER_BIN_DIR=$(abspath $(BUILD))/bin $$(deploy/bootstrap --prefix)/bin/python tests/soak/soak.py $$kind \
	  $(if $(SEED),--seed $(SEED)) || exit 1; done
	@MUSTER_BIN_DIR=$(abspath $(BUILD))/bin $$(deploy/bootstrap --prefix)/bin/python tests/soak/servers.py $(if $(SEED),--seed $(SEED))

# What the tests run of common/, chief/, worker/ and ps/. A failed test fails it; the figures are printed all the same.
.PHONY: coverage
coverage: BUILD := build-coverage
coverage: bootstrap-test
	@test -f build-coverage/tests/CTestTestfile.cmake || cmake --preset coverage --log-level=WARNING -DBUILD_TESTING=ON >/dev/null
	@$(COMPILE)
	@find build-coverage -name '*.gcda' -delete
	@ctest --test-dir build-coverage -L '^(unit|cluster|interop|fuzz)$$' --output-on-failure; code=$$?; \
	  /usr/bin/python3 tests/coverage.py build-coverage && exit $$code

# The image of k8s/, from the Containerfile, by podman or docker.
IMAGE ?= muster
DEVICES ?= cpu
ENGINE ?= $(shell command -v podman || command -v docker)
.PHONY: image
image:
	@test -n "$(ENGINE)" || { echo "make image needs podman or docker: install one, or name it with ENGINE=" >&2; exit 2; }
	@$(ENGINE) build --file Containerfile --build-arg DEVICES=$(DEVICES) --tag $(IMAGE) .

# Roots are kept in build-roots. Needs debootstrap and zstd, package archives, and MUSTER_UBUNTU_ARCHIVE for Ubuntu.
.PHONY: test-roots
test-roots: programs
	@MUSTER_BIN_DIR=$(abspath $(BUILD))/bin PYTHONDONTWRITEBYTECODE=1 $$(deploy/bootstrap --prefix)/bin/python tests/image/roots_test.py

# A line of result for each step (tests/nightly).
.PHONY: nightly
nightly:
	@MINUTES=$(MINUTES) tests/nightly $(STEPS)

# docs/packages.md. bootstrap-test: making packages needs more than building.
PACKAGES = $(BUILD)/packages
.PHONY: wheel deb
wheel: bootstrap-test programs
	@cmake --build $(BUILD) --target sbom
	@/usr/bin/python3 -B deploy/package/build_wheel.py $(BUILD) $(PACKAGES)

deb: bootstrap-test programs
	@cmake --build $(BUILD) --target sbom
	@/usr/bin/python3 -B deploy/package/build_deb.py $(BUILD) $(PACKAGES)

# Both packages on a Debian where nothing is installed (tests/package/empty_root), as root; some gigabytes are downloaded.
.PHONY: try-packages
try-packages: wheel deb
	@root=$$(mktemp -d) && trap 'rm -rf --one-file-system "$$root"' EXIT && tests/package/empty_root "$$root" $(PACKAGES)/*.deb $(PACKAGES)/*.whl

# Each with the Python that has what it needs (bench/run.py). They print ratios of times: the machine should be idle.
.PHONY: bench
bench: bootstrap-test
	@test -f build-bench/build.ninja || cmake --preset bench --log-level=WARNING -DBUILD_TESTING=OFF >/dev/null
	@NINJA_STATUS='[%p of %t steps, %e s] ' cmake --build build-bench --parallel $(JOBS) --target benchmarks
	@$$(deploy/bootstrap --prefix)/bin/python bench/run.py build-bench --flags="$(FLAGS)" $(BENCH)

format:
	@clang-format -i $(SOURCES)

format-check:
	@clang-format --dry-run --Werror $(SOURCES)

# Sources that differ from SINCE, also those that are not committed.
SINCE ?= $(shell git merge-base HEAD origin/main 2>/dev/null || echo HEAD)
.PHONY: tidy
tidy: bootstrap-test $(BUILD)/tests/CTestTestfile.cmake
	@command -v clang-tidy >/dev/null || { echo "make tidy needs clang-tidy: apt-get install clang-tidy" >&2; exit 2; }
	@files=$$(git diff --name-only --diff-filter=d $(SINCE) -- '*.cc'; git ls-files --others --exclude-standard -- '*.cc'); \
	  if [ -z "$$files" ]; then echo "no source differs from $(SINCE)"; else PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 tests/lint/tidy.py $(BUILD) $$files; fi

# git runs .githooks/pre-commit before each commit from now on, in all worktrees of this clone.
.PHONY: hooks
hooks:
	@git config core.hooksPath .githooks
	@echo "git checks each commit now; off again: git config --unset core.hooksPath"

clean:
	@rm -rf build build-*
