// Converts rows of an embedding table to and from 16-bit types, and clips gradients of rows. The
// functions are compiled for several instruction sets, and give the same bits with each set.
#pragma once

#include <cstdint>
#include <span>

#include "common/push_pull/rows/embedding_table.h"

namespace muster::push_pull {

// Returns the number of float32 elements that `width` numbers of `type` occupy.
inline int64_t FloatsOf(RowType type, int64_t width) {
  return type == RowType::kFloat32 ? width : (width + 1) / 2;
}

// The Store functions convert `row` to `type` and write the result to the address `to`. A finite
// value beyond the range of the type becomes the largest finite value with the same sign.
//
// StoreNearest rounds to nearest, ties to even.
void StoreNearest(RowType type, std::span<const float> row, float* to);
// StoreRounded rounds bfloat16 at random (see RowType), and the other types to nearest. `chance` is
// the source of the random bits. A value that the type can represent does not change.
void StoreRounded(RowType type, std::span<const float> row, uint64_t chance, float* to);
// Converts values of `type` to float32.
void Load(RowType type, const float* from, std::span<float> row);

// Clips the gradient of each row in place. `gradients` has the shape [rows][width]. `clipnorm`
// limits the L2 norm of each row.
void ClipRows(const ClipOptions& clip, int64_t width, std::span<float> gradients);

}  // namespace muster::push_pull
