// What is done to rows of an embedding table besides the optimizer's rule: 16-bit types, and the
// clipping of gradients. Compiled for the processor at hand; the bits are the same on all of them.
#pragma once

#include <cstdint>
#include <span>

#include "common/push_pull/embedding_table.h"

namespace muster {

// Of memory that so many numbers of the type take, in float32.
inline int64_t FloatsOf(RowType type, int64_t width) {
  return type == RowType::kFloat32 ? width : (width + 1) / 2;
}

// To the nearest, ties to even. What is finite stays so, here and below: what is beyond the type's
// range becomes the largest that it has.
void StoreNearest(RowType type, std::span<const float> row, float* to);
// As RowType says; `chance` decides. A number that the type has stays what it is.
void StoreRounded(RowType type, std::span<const float> row, uint64_t chance, float* to);
void Load(RowType type, const float* from, std::span<float> row);

// Clips each of the rows [n][width] of gradients; clipnorm goes by a row's own norm.
void ClipRows(const ClipOptions& clip, int64_t width, std::span<float> gradients);

}  // namespace muster
