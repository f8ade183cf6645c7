// Compression of payloads: conversion of float32 to 16 bits (to nearest, ties to even) and back.
// Finite values stay finite: values beyond the range of the 16-bit type become its largest value.
#pragma once

#include <cstdint>
#include <span>

#include "common/push_pull/options.h"

namespace muster::ps {

// `out` and `in` have as many elements as `values`. REQUIRES: the compression is not kNone.
void Narrow(Compression to, std::span<const float> values, uint16_t* out);
void Widen(Compression from, const uint16_t* in, std::span<float> values);

}  // namespace muster::ps
