// Converts rows of an embedding table to and from 16-bit types, and clips their gradients. The
// functions are compiled for several instruction sets and give the same bits on all of them.
#pragma once

#include <cstdint>
#include <span>

#include "common/push_pull/rows/embedding_table.h"

namespace muster::push_pull {

// Returns how many float32 elements `width` numbers of the type occupy.
inline int64_t FloatsOf(RowType type, int64_t width) {
  return type == RowType::kFloat32 ? width : (width + 1) / 2;
}

// Rounds to nearest, ties to even. Both Store functions keep finite values finite: a value beyond
// the type's range becomes the largest value of its sign.
void StoreNearest(RowType type, std::span<const float> row, float* to);
// Rounds as RowType describes. `chance` is the source of the random bits. A value that the type can
// represent is unchanged.
void StoreRounded(RowType type, std::span<const float> row, uint64_t chance, float* to);
void Load(RowType type, const float* from, std::span<float> row);

// Clips each of the gradient rows [n][width]. clipnorm applies to the norm of each row.
void ClipRows(const ClipOptions& clip, int64_t width, std::span<float> gradients);

}  // namespace muster::push_pull
