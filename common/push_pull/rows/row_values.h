// Operations on rows of an embedding table other than the optimizer's rule: conversion of 16-bit
// types and clipping of gradients. Compiled for several instruction sets, with the same bits on all
// of them.
#pragma once

#include <cstdint>
#include <span>

#include "common/push_pull/rows/embedding_table.h"

namespace muster {

// The float32 elements of memory that `width` numbers of the type need.
inline int64_t FloatsOf(RowType type, int64_t width) {
  return type == RowType::kFloat32 ? width : (width + 1) / 2;
}

// Rounds to nearest, ties to even. Finite values stay finite, here and below: values beyond the
// type's range become its largest value.
void StoreNearest(RowType type, std::span<const float> row, float* to);
// Rounds as RowType describes, with the random bits of `chance`. A value that the type can
// represent is unchanged.
void StoreRounded(RowType type, std::span<const float> row, uint64_t chance, float* to);
void Load(RowType type, const float* from, std::span<float> row);

// Clips each of the gradient rows [n][width]. clipnorm applies to the norm of each row.
void ClipRows(const ClipOptions& clip, int64_t width, std::span<float> gradients);

}  // namespace muster
