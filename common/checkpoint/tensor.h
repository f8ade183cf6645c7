// A tensor as files store it: a name, a type, a shape, and bytes in row-major order, little-endian.
// Needs no LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace muster::checkpoint {

enum class DType : uint8_t {
  kBool,
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64
};
inline constexpr int kNumDTypes = 10;
// The names of the types in safetensors files, and the sizes of an element in bytes. Indexed by
// DType.
inline constexpr std::string_view kDTypeNames[kNumDTypes] = {"BOOL", "U8",  "I8",   "I16", "I32",
                                                             "I64",  "F16", "BF16", "F32", "F64"};
inline constexpr int kDTypeBytes[kNumDTypes] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8};

struct TensorInfo {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;  // Empty for a scalar.

  int64_t elements() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
  size_t bytes() const {
    return static_cast<size_t>(elements()) * kDTypeBytes[static_cast<int>(dtype)];
  }
};

// A tensor of a TensorSet. The set owns the bytes.
struct Tensor : TensorInfo {
  const char* data = nullptr;  // bytes() bytes. Null if the bytes are in TensorSet::file.
  size_t in_file = 0;          // The tensor's index in TensorSet::file, if `data` is null.
};

class RowSource;

struct TensorSet {
  std::vector<Tensor> tensors;         // The names are unique.
  std::shared_ptr<const void> memory;  // Owns the memory of Tensor::data.
  // Has the bytes of the tensors with a null `data`. ReadTensor (row_source.h) reads them.
  std::shared_ptr<const RowSource> file;

  size_t bytes() const {
    size_t sum = 0;
    for (const Tensor& t : tensors) sum += t.bytes();
    return sum;
  }
  const Tensor* Find(std::string_view name) const {
    for (const Tensor& t : tensors)
      if (t.name == name) return &t;
    return nullptr;
  }
};

}  // namespace muster::checkpoint
