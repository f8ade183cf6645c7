# Thin: deploy/bootstrap installs, CMake presets build, ctest tests.
PRESET ?= release
BUILD := $(if $(filter release,$(PRESET)),build,build-$(PRESET))
JOBS ?= $(shell nproc)
BOOTSTRAP_FLAGS ?=
SOURCES = $(shell git ls-files '*.h' '*.cc' '*.cu')

.PHONY: build train test format format-check clean bootstrap

bootstrap:
	@deploy/bootstrap $(BOOTSTRAP_FLAGS)

$(BUILD)/build.ninja: | bootstrap
	@echo "configuring and building Muster: a few minutes the first time"
	@cmake --preset $(PRESET) --log-level=WARNING >/dev/null

build: bootstrap $(BUILD)/build.ninja
	@cmake --build $(BUILD) --parallel $(JOBS)

# A chief and a worker on this host, in a fresh folder. Builds the programs alone, not the tests.
train: bootstrap $(BUILD)/build.ninja
	@cmake --build $(BUILD) --parallel $(JOBS) --target muster muster-chief muster-worker
	@$(BUILD)/bin/muster launch --workers 1 --job examples/fashion_mnist.json --set model_dir=runs/fashion_mnist-$$(date +%Y%m%d-%H%M%S)

test: build
	@ctest --test-dir $(BUILD) --output-on-failure

format:
	@clang-format -i $(SOURCES)

format-check:
	@clang-format --dry-run --Werror $(SOURCES)

clean:
	@rm -rf build build-*
