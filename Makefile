# Thin: deploy/bootstrap installs, CMake presets build, ctest tests.
PRESET ?= release
BUILD := $(if $(filter release,$(PRESET)),build,build-$(PRESET))
JOBS ?= $(shell nproc)
BOOTSTRAP_FLAGS ?=
SOURCES = $(shell git ls-files '*.h' '*.cc' '*.cu')

.PHONY: build train tensorboard test soak format format-check clean bootstrap

bootstrap:
	@deploy/bootstrap $(BOOTSTRAP_FLAGS)

$(BUILD)/build.ninja: | bootstrap
	@echo "configuring and building Muster: a few minutes the first time"
	@cmake --preset $(PRESET) --log-level=WARNING >/dev/null

build: bootstrap $(BUILD)/build.ninja
	@cmake --build $(BUILD) --parallel $(JOBS)

# A chief, a worker and an evaluator on this host, in a fresh folder. Builds the programs alone, not the tests.
train: RUN := runs/fashion_mnist-$(shell date +%Y%m%d-%H%M%S)
train: bootstrap $(BUILD)/build.ninja
	@cmake --build $(BUILD) --parallel $(JOBS) --target muster muster-chief muster-worker muster-ps muster-evaluator muster-tool
	@$(BUILD)/bin/muster launch --workers 1 --evaluator --job examples/fashion_mnist.json --set model_dir=$(RUN)
	@echo "curves of all runs in TensorBoard: make tensorboard, then open http://localhost:6006"

tensorboard: bootstrap
	@exec $$(deploy/bootstrap --prefix)/bin/tensorboard --logdir runs --port 6006

test: build
	@ctest --test-dir $(BUILD) --output-on-failure

# A hundred random faults in one run of each of two programs: some twenty minutes. SEED=... repeats one.
soak: build
	@MUSTER_BIN_DIR=$(abspath $(BUILD))/bin $$(deploy/bootstrap --prefix)/bin/python tests/soak/soak.py $(if $(SEED),--seed $(SEED))

format:
	@clang-format -i $(SOURCES)

format-check:
	@clang-format --dry-run --Werror $(SOURCES)

clean:
	@rm -rf build build-*
