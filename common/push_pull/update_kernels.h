// Optimizer rules over plain memory: what a parameter server does with a part of a variable, its
// slots and a gradient that came over the wire. One pass over the memory, vectorised for the
// processor at hand; the arithmetic is the same on all of them, so that a backup on another host
// holds the same bits. Needs no LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "common/push_pull/optimizer_spec.h"

namespace muster {

inline constexpr int kMostSlots = 3;  // of a parameter's shape

// The same range of elements of a parameter and of all that goes with it.
struct UpdateRange {
  std::span<float> parameter;
  std::span<const float> gradient;            // as long
  std::array<float*, kMostSlots> slots = {};  // in the order of ShapedSlots; as long
};

// SlotNames without "step", which is one number for each parameter.
std::vector<std::string> ShapedSlots(const RuleSpec& rule);
// Of each slot of a row of that width.
int64_t SlotElements(const RuleSpec& rule, int64_t width);

// One update in place. `step` counts the updates of this parameter, this one included (from 1).
// Ranges of one parameter may be updated one after the other with the same step. Any thread, as
// long as no other one touches the range.
void ApplyUpdate(const RuleSpec& rule, double learning_rate, int64_t step,
                 const UpdateRange& range);

// Takes weight x difference away, but no more than the weight's part of what is there: numbers that
// are not negative stay so. `weight` in [0, 1].
void ApplyDifference(double weight, std::span<float> parameter, std::span<const float> difference);

// No infinity and no NaN among them.
bool AllFinite(std::span<const float> values);

// Copies to memory that other cores read next, past the caches of this one: lines that are
// overwritten are not fetched first, and what is in use here stays.
void CopyPastCaches(std::span<const float> from, float* to);

// One update of many short rows, each [parameter, slots...] one after the other in memory (slots of
// SlotElements);
// gradients lie row after row. All share `step`: rows of one table that were made later begin in
// the middle, as TensorFlow's sparse optimizers have it.
struct RowUpdates {
  std::span<float* const> rows;
  const float* gradients = nullptr;  // [rows][width]
  int64_t width = 0;                 // elements of a row's parameter
};
void ApplyRowUpdates(const RuleSpec& rule, double learning_rate, int64_t step,
                     const RowUpdates& updates);

// For tests: ApplyUpdate as compiled for each instruction set that this processor has.
using UpdateKernel = void (*)(const RuleSpec&, double learning_rate, int64_t step,
                              const UpdateRange&);
std::vector<UpdateKernel> AvailableKernels();

}  // namespace muster
