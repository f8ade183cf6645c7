// Optimizer rules over plain memory: a parameter server applies them to a part of a variable, its
// slots and a received gradient. Each makes one pass over the memory. The code is vectorized for
// several instruction sets with the same arithmetic, so that a backup on another host holds the
// same bits. Needs no LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "common/optim/optimizer_spec.h"

namespace muster {

inline constexpr int kMostSlots = 3;  // Slots of the parameter's shape.

// The same range of elements of a parameter, its gradient and its slots.
struct UpdateRange {
  std::span<float> parameter;
  std::span<const float> gradient;  // As long as `parameter`.
  // In the order of ShapedSlots. Each as long as `parameter`.
  std::array<float*, kMostSlots> slots = {};
};

// SlotNames without "step", which is one number per parameter.
std::vector<std::string> ShapedSlots(const RuleSpec& rule);
// The elements of each slot of a row of that width.
int64_t SlotElements(const RuleSpec& rule, int64_t width);

// Makes one update in place. `step` is the number of updates of this parameter, including this one
// (from 1). Ranges of one parameter may be updated in sequence with the same step. Thread-safe if
// no other thread uses the range.
void ApplyUpdate(const RuleSpec& rule, double learning_rate, int64_t step,
                 const UpdateRange& range);

// Subtracts weight x difference, but at most the fraction `weight` of the current value, so that
// values that are not negative stay so. `weight` is in [0, 1].
void ApplyDifference(double weight, std::span<float> parameter, std::span<const float> difference);

// True if no value is infinite or NaN.
bool AllFinite(std::span<const float> values);

// Copies to memory that other cores read next, bypassing this core's caches. Overwritten lines are
// not fetched first, and cached data stays.
void CopyPastCaches(std::span<const float> from, float* to);

// One update of many short rows. Each row is [parameter, slots...] in contiguous memory (slots of
// SlotElements). Gradients are contiguous by row. All rows share `step`: rows that were created
// later start at the current step, as in TensorFlow's sparse optimizers.
struct RowUpdates {
  std::span<float* const> rows;
  const float* gradients = nullptr;  // Shape [rows][width].
  int64_t width = 0;                 // Elements of a row's parameter.
};
void ApplyRowUpdates(const RuleSpec& rule, double learning_rate, int64_t step,
                     const RowUpdates& updates);

// For tests: ApplyUpdate compiled for each instruction set that this processor supports.
using UpdateKernel = void (*)(const RuleSpec&, double learning_rate, int64_t step,
                              const UpdateRange&);
std::vector<UpdateKernel> AvailableKernels();

}  // namespace muster
