// The optimizers' updates on plain memory. A parameter server calls these functions to apply a
// gradient to a part of a variable and its slots. A slot is the optimizer's state for a parameter,
// such as momentum. Each update makes one pass over the memory. The code is compiled for several
// instruction sets, and gives the same bits with each instruction set. Copies of a variable on
// different hosts therefore stay equal. Needs no LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "common/optim/optimizer_spec.h"

namespace muster {

inline constexpr int kMaxSlots = 3;  // The maximum length of ShapedSlots.

// The same range of elements of a parameter, its gradient and its slots.
struct UpdateRange {
  std::span<float> parameter;
  std::span<const float> gradient;  // As long as `parameter`.
  // The slots in the order of ShapedSlots. Each slot is as long as `parameter`.
  std::array<float*, kMaxSlots> slots = {};
};

// Returns SlotNames without "step", which is one number per parameter.
std::vector<std::string> ShapedSlots(const RuleSpec& rule);
// Returns the number of elements in each slot of a row of an embedding table. The row's parameter
// has `width` elements.
int64_t SlotElements(const RuleSpec& rule, int64_t width);

// Makes one update in place. `step` is the number of this update of the parameter, from 1. A
// parameter may be updated in several calls with the same `step`: one call for each range.
// Thread-safe if no other thread uses the range.
void ApplyUpdate(const RuleSpec& rule, double learning_rate, int64_t step,
                 const UpdateRange& range);

// Subtracts weight * difference from each value, but at most weight * value. A value of 0 or more
// therefore stays 0 or more. `weight` is in [0, 1].
void ApplyDifference(double weight, std::span<float> parameter, std::span<const float> difference);

// Returns true if no value is infinite or NaN.
bool AllFinite(std::span<const float> values);

// Copies with non-temporal stores, which bypass this core's caches. Faster than memcpy if other
// cores read `to` next.
void CopyPastCaches(std::span<const float> from, float* to);

// One update of many rows of an embedding table.
struct RowUpdates {
  // The memory of each row: the parameter, followed by its slots. Each slot has SlotElements
  // elements.
  std::span<float* const> rows;
  const float* gradients = nullptr;  // In the shape [rows][width].
  int64_t width = 0;                 // The number of elements of a row's parameter.
};
// `step` is the number of this update of the table, from 1. New rows have the same step as all
// other rows, as in TensorFlow's sparse optimizers.
void ApplyRowUpdates(const RuleSpec& rule, double learning_rate, int64_t step,
                     const RowUpdates& updates);

// Returns the compiled variants of ApplyUpdate that this processor supports. For tests.
using UpdateKernel = void (*)(const RuleSpec&, double learning_rate, int64_t step,
                              const UpdateRange&);
std::vector<UpdateKernel> AvailableKernels();

}  // namespace muster
