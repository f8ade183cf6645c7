// Optimizer rules that work on plain memory. A parameter server uses them to apply a received
// gradient to a part of a variable and its slots. Each rule makes one pass over the memory. The
// code is vectorized for several instruction sets. All of them compute the same bits, so a backup
// on another host equals its primary. This code does not need LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "common/optim/optimizer_spec.h"

namespace muster {

inline constexpr int kMaxSlots = 3;  // Limit of the slots that have the parameter's shape.

// The same range of elements of a parameter, its gradient and its slots.
struct UpdateRange {
  std::span<float> parameter;
  std::span<const float> gradient;  // As long as `parameter`.
  // The slots in the order of ShapedSlots. Each slot is as long as `parameter`.
  std::array<float*, kMaxSlots> slots = {};
};

// Returns SlotNames without "step", which is one number per parameter.
std::vector<std::string> ShapedSlots(const RuleSpec& rule);
// Returns the number of elements in each slot of an embedding row with `width` elements.
int64_t SlotElements(const RuleSpec& rule, int64_t width);

// Makes one update in place. `step` counts the updates of this parameter, including this one, from
// 1. Several ranges of one parameter may be updated one after another with the same step.
// Thread-safe if no other thread uses the range.
void ApplyUpdate(const RuleSpec& rule, double learning_rate, int64_t step,
                 const UpdateRange& range);

// Subtracts weight x difference from each value, but at most weight x value. A value of 0 or more
// therefore never becomes negative. `weight` is in [0, 1].
void ApplyDifference(double weight, std::span<float> parameter, std::span<const float> difference);

// Returns true if no value is infinite or NaN.
bool AllFinite(std::span<const float> values);

// Copies past this core's caches (non-temporal stores). Used if other cores read `to` next. The
// copy does not first load the overwritten cache lines, and does not displace cached data.
void CopyPastCaches(std::span<const float> from, float* to);

// One update of many embedding rows. A row is contiguous memory: the parameter, then its slots of
// SlotElements each. The gradients of all rows are contiguous too. All rows share `step`, as in
// TensorFlow's sparse optimizers. A new row starts at the current step.
struct RowUpdates {
  std::span<float* const> rows;
  const float* gradients = nullptr;  // [rows][width]
  int64_t width = 0;                 // Elements of a row's parameter.
};
void ApplyRowUpdates(const RuleSpec& rule, double learning_rate, int64_t step,
                     const RowUpdates& updates);

// Returns ApplyUpdate as compiled for each instruction set that this processor supports. For tests.
using UpdateKernel = void (*)(const RuleSpec&, double learning_rate, int64_t step,
                              const UpdateRange&);
std::vector<UpdateKernel> AvailableKernels();

}  // namespace muster
