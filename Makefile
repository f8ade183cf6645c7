# Thin: deploy/bootstrap installs, CMake presets build, ctest tests.
PRESET ?= release
BUILD := $(if $(filter release,$(PRESET)),build,build-$(PRESET))
JOBS ?= $(shell nproc)
BOOTSTRAP_FLAGS ?=
NOW = $(shell date +%Y%m%d-%H%M%S)
PICTURES = $$(deploy/bootstrap --prefix)/bin/python examples/pictures.py
SOURCES = $(shell git ls-files '*.h' '*.cc' '*.cu')

.PHONY: build programs train classifier cyclegan language_model recommender tensorboard test fuzz soak format format-check clean bootstrap

bootstrap:
	@deploy/bootstrap $(BOOTSTRAP_FLAGS)

$(BUILD)/build.ninja: | bootstrap
	@echo "configuring and building Muster: a few minutes the first time"
	@cmake --preset $(PRESET) --log-level=WARNING >/dev/null

build: bootstrap $(BUILD)/build.ninja
	@cmake --build $(BUILD) --parallel $(JOBS)

# The programs alone, not the tests.
programs: bootstrap $(BUILD)/build.ninja
	@cmake --build $(BUILD) --parallel $(JOBS) --target muster muster-chief muster-worker muster-ps muster-evaluator muster-tool

# One member on each GPU of this host, or a chief and a worker on its CPU; and an evaluator. In a fresh folder.
train: RUN := runs/fashion_mnist-$(NOW)
train: programs
	@$(BUILD)/bin/muster launch --workers auto --evaluator --job examples/fashion_mnist.json --set model_dir=$(RUN)
	@echo "curves of all runs in TensorBoard: make tensorboard, then open http://localhost:6006"

# The other examples, a chief and a worker each. What they train on is made where it is missing.
classifier: RUN := runs/image_classifier-$(NOW)
classifier: programs runs/pictures/photos runs/image_classifier_base/weights.safetensors
	@$(BUILD)/bin/muster launch --workers 1 --job examples/image_classifier.json --set model_dir=$(RUN)

cyclegan: RUN := runs/cyclegan-$(NOW)
cyclegan: programs runs/pictures/domains
	@$(BUILD)/bin/muster launch --workers 1 --job examples/cyclegan.json --set model_dir=$(RUN)

language_model: RUN := runs/language_model-$(NOW)
language_model: programs
	@$(BUILD)/bin/muster launch --workers 1 --job examples/language_model.json --set model_dir=$(RUN)
	@$(BUILD)/bin/muster predict --job examples/language_model.json --set model_dir=$(RUN) --checkpoint best --prompt "The return statement" \
	  --output $(RUN)/text.npy

recommender: RUN := runs/recommender-$(NOW)
recommender: programs
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

# An interrupted run goes on where it was.
runs/image_classifier_base/weights.safetensors: | programs runs/pictures/base
	@$(BUILD)/bin/muster launch --workers 1 --job examples/image_classifier_base.json
	@$(BUILD)/bin/muster export --checkpoint runs/image_classifier_base/checkpoints/best --output $@

tensorboard: bootstrap
	@exec $$(deploy/bootstrap --prefix)/bin/tensorboard --logdir runs --port 6006

test: build
	@ctest --test-dir $(BUILD) --output-on-failure

# Each parser of what comes from outside, for so many minutes (docs/fuzzing.md). All are run, also where one finds something.
MINUTES ?= 10
TARGETS ?= $(patsubst tests/fuzz/%_fuzz.cc,%,$(sort $(wildcard tests/fuzz/*_fuzz.cc)))
fuzz: bootstrap
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

format:
	@clang-format -i $(SOURCES)

format-check:
	@clang-format --dry-run --Werror $(SOURCES)

clean:
	@rm -rf build build-*
