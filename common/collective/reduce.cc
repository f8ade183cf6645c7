#include "common/collective/reduce.h"

#include <algorithm>

#include "common/base/float16.h"
#include "common/base/kernels.h"

namespace muster::collective {
namespace {

constexpr int64_t kBlock = 2048;  // Elements reduced at a time. The accumulator fits in L1.

MUSTER_KERNEL_INLINE float Widen(float x) { return x; }
MUSTER_KERNEL_INLINE double Widen(double x) { return x; }
MUSTER_KERNEL_INLINE int64_t Widen(int64_t x) { return x; }
MUSTER_KERNEL_INLINE void Narrow(float x, float* to) { *to = x; }
MUSTER_KERNEL_INLINE void Narrow(double x, double* to) { *to = x; }
MUSTER_KERNEL_INLINE void Narrow(int64_t x, int64_t* to) { *to = x; }

template <typename T>
MUSTER_KERNEL_INLINE T Add(T a, T b) {
  return a + b;
}
template <>
MUSTER_KERNEL_INLINE int64_t Add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
template <typename T>
MUSTER_KERNEL_INLINE T Max(T a, T b) {
  return (a > b || a != a) ? a : b;  // NaN wins.
}

template <typename T>
MUSTER_KERNEL_INLINE T Min(T a, T b) {
  return (a < b || a != a) ? a : b;  // NaN wins.
}

template <typename T, ReduceOp kOp>
MUSTER_KERNEL_INLINE T Apply(T a, T b) {
  if constexpr (kOp == ReduceOp::kMax) return Max(a, b);
  if constexpr (kOp == ReduceOp::kMin) return Min(a, b);
  return Add(a, b);
}

// Reduces two sources, which is the most common case. Needs no accumulator.
template <typename T, typename Wide, ReduceOp kOp>
MUSTER_KERNEL_INLINE void ReduceTwo(T* out, T* out2, const T* a, const T* b, int64_t count) {
  if (out2 == nullptr) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      Narrow(Apply<Wide, kOp>(Widen(a[i]), Widen(b[i])), &out[i]);
    }
    return;
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    T value;
    Narrow(Apply<Wide, kOp>(Widen(a[i]), Widen(b[i])), &value);
    out[i] = value;
    out2[i] = value;
  }
}

template <typename T, typename Wide, ReduceOp kOp>
MUSTER_KERNEL_INLINE void ReduceMany(std::span<void* const> outs,
                                     std::span<const void* const> sources, int64_t count,
                                     int64_t divisor) {
  if (sources.size() == 2 && divisor == 1 && (outs.size() == 1 || outs.size() == 2)) {
    return ReduceTwo<T, Wide, kOp>(
        static_cast<T*>(outs[0]), outs.size() == 2 ? static_cast<T*>(outs[1]) : nullptr,
        static_cast<const T*>(sources[0]), static_cast<const T*>(sources[1]), count);
  }
  alignas(64) Wide sum[kBlock];
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t n = std::min(kBlock, count - at);
    const T* first = static_cast<const T*>(sources[0]) + at;
    for (int64_t i = 0; i < n; ++i) sum[i] = Widen(first[i]);
    for (size_t s = 1; s < sources.size(); ++s) {
      const T* next = static_cast<const T*>(sources[s]) + at;
      for (int64_t i = 0; i < n; ++i) sum[i] = Apply<Wide, kOp>(sum[i], Widen(next[i]));
    }
    if (divisor != 1) {
      for (int64_t i = 0; i < n; ++i) sum[i] /= static_cast<Wide>(divisor);
    }
    for (void* out : outs) {
      T* to = static_cast<T*>(out) + at;
      for (int64_t i = 0; i < n; ++i) Narrow(sum[i], &to[i]);
    }
  }
}

template <typename T, typename Wide>
MUSTER_KERNEL_INLINE void ReduceTyped(std::span<void* const> outs,
                                      std::span<const void* const> sources, int64_t count,
                                      Reduction reduction) {
  switch (reduction.op) {
    case ReduceOp::kMax:
      return ReduceMany<T, Wide, ReduceOp::kMax>(outs, sources, count, reduction.divisor);
    case ReduceOp::kMin:
      return ReduceMany<T, Wide, ReduceOp::kMin>(outs, sources, count, reduction.divisor);
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return ReduceMany<T, Wide, ReduceOp::kSum>(outs, sources, count, reduction.divisor);
  }
}

#define MUSTER_KERNEL(name, attributes)                                                   \
  attributes void name(std::span<void* const> outs, std::span<const void* const> sources, \
                       int64_t count, DataType type, Reduction reduction) {               \
    switch (type) {                                                                       \
      case DataType::kFloat32:                                                            \
        return ReduceTyped<float, float>(outs, sources, count, reduction);                \
      case DataType::kFloat64:                                                            \
        return ReduceTyped<double, double>(outs, sources, count, reduction);              \
      case DataType::kFloat16:                                                            \
        return ReduceTyped<Float16, float>(outs, sources, count, reduction);              \
      case DataType::kBFloat16:                                                           \
        return ReduceTyped<BFloat16, float>(outs, sources, count, reduction);             \
      case DataType::kInt64:                                                              \
        return ReduceTyped<int64_t, int64_t>(outs, sources, count, reduction);            \
      case DataType::kByte:                                                               \
        break;                                                                            \
    }                                                                                     \
  }

MUSTER_FOR_EACH_PROCESSOR(MUSTER_KERNEL, Reduce)

using Kernel = void (*)(std::span<void* const>, std::span<const void* const>, int64_t, DataType,
                        Reduction);

}  // namespace

void ReduceElements(std::span<void* const> outs, std::span<const void* const> sources,
                    int64_t count, DataType type, Reduction reduction) {
  static const Kernel kernel = MUSTER_CHOOSE_KERNEL(Reduce);
  kernel(outs, sources, count, type, reduction);
}

}  // namespace muster::collective
