#include "common/optim/update_kernels.h"

#include <algorithm>
#include <cmath>

#include "common/base/kernels.h"
#include "common/base/prefetch.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

// Results must not depend on the processor, and only some processors have fused multiply-adds.
// CMakeLists.txt therefore sets -ffp-contract=off for this file.

namespace muster {
namespace {

// The operation of each rule on one element. The constructor computes the values that are equal for
// all elements. a, b and c are the element's slots.
struct Sgd {
  Sgd(const SgdSpec& spec, double learning_rate, int64_t)
      : rate(static_cast<float>(learning_rate)),
        momentum(static_cast<float>(spec.momentum)),
        decay(static_cast<float>(spec.weight_decay)),
        nesterov(spec.nesterov) {}
  float rate, momentum, decay;
  bool nesterov;
};
struct PlainSgd : Sgd {
  using Sgd::Sgd;
  MUSTER_KERNEL_INLINE void operator()(float& p, float g, float&, float&, float&) const {
    p -= rate * (g + decay * p);
  }
};
struct MomentumSgd : Sgd {
  using Sgd::Sgd;
  MUSTER_KERNEL_INLINE void operator()(float& p, float g, float& a, float&, float&) const {
    g += decay * p;
    a = momentum * a + g;
    p -= rate * a;
  }
};
struct NesterovSgd : Sgd {
  using Sgd::Sgd;
  MUSTER_KERNEL_INLINE void operator()(float& p, float g, float& a, float&, float&) const {
    g += decay * p;
    a = momentum * a + g;
    p -= rate * (g + momentum * a);
  }
};

template <bool kAmsgrad>
struct Adam {
  Adam(const AdamSpec& spec, double learning_rate, int64_t step)
      : beta1(static_cast<float>(spec.beta1)),
        beta2(static_cast<float>(spec.beta2)),
        rest1(static_cast<float>(1 - spec.beta1)),
        rest2(static_cast<float>(1 - spec.beta2)),
        epsilon(static_cast<float>(spec.epsilon)),
        decay(spec.decoupled ? 0 : static_cast<float>(spec.weight_decay)),
        keep(spec.decoupled ? static_cast<float>(1 - learning_rate * spec.weight_decay) : 1) {
    const double count = static_cast<double>(step);
    size = static_cast<float>(learning_rate / (1 - std::pow(spec.beta1, count)));
    root = static_cast<float>(1 / std::sqrt(1 - std::pow(spec.beta2, count)));
  }
  MUSTER_KERNEL_INLINE void operator()(float& p, float g, float& a, float& b, float& c) const {
    p *= keep;
    g += decay * p;
    a = beta1 * a + rest1 * g;
    b = beta2 * b + rest2 * g * g;
    float second = b;
    if constexpr (kAmsgrad) second = c = c < b ? b : c;
    p -= size * a / (std::sqrt(second) * root + epsilon);
  }
  float beta1, beta2, rest1, rest2, epsilon, decay, keep, size, root;
};

struct Adagrad {
  Adagrad(const AdagradSpec& spec, double learning_rate, int64_t)
      : rate(static_cast<float>(learning_rate)),
        epsilon(static_cast<float>(spec.epsilon)),
        decay(static_cast<float>(spec.weight_decay)) {}
  MUSTER_KERNEL_INLINE void operator()(float& p, float g, float& a, float&, float&) const {
    g += decay * p;
    a += g * g;
    p -= rate * g / (std::sqrt(a) + epsilon);
  }
  float rate, epsilon, decay;
};

// The slots are square_avg, then grad_avg if kCentered, then momentum_buffer if kMomentum.
template <bool kCentered, bool kMomentum>
struct RmsProp {
  RmsProp(const RmsPropSpec& spec, double learning_rate, int64_t)
      : rate(static_cast<float>(learning_rate)),
        rho(static_cast<float>(spec.rho)),
        rest(static_cast<float>(1 - spec.rho)),
        momentum(static_cast<float>(spec.momentum)),
        epsilon(static_cast<float>(spec.epsilon)),
        decay(static_cast<float>(spec.weight_decay)) {}
  MUSTER_KERNEL_INLINE void operator()(float& p, float g, float& a, float& b, float& c) const {
    g += decay * p;
    a = rho * a + rest * g * g;
    float square = a;
    if constexpr (kCentered) {
      b = rho * b + rest * g;
      const float variance = a - b * b;
      square = variance < 0 ? 0 : variance;  // Rounding may make it negative.
    }
    const float step = g / (std::sqrt(square) + epsilon);
    if constexpr (kMomentum) {
      float& buffer = kCentered ? c : b;
      buffer = momentum * buffer + step;
      p -= rate * buffer;
    } else {
      p -= rate * step;
    }
  }
  float rate, rho, rest, momentum, epsilon, decay;
};

struct Ftrl {
  Ftrl(const FtrlSpec& spec, double learning_rate, int64_t)
      : inverse(static_cast<float>(1 / learning_rate)),
        l1(static_cast<float>(spec.l1)),
        l2(static_cast<float>(2 * (spec.l2 + spec.beta / (2 * learning_rate)))),
        shrinkage(static_cast<float>(2 * spec.l2_shrinkage)) {}
  MUSTER_KERNEL_INLINE void operator()(float& p, float g, float& a, float& b, float&) const {
    const float grown = a + g * g;
    const float root = std::sqrt(grown);
    b += g + shrinkage * p - (root - std::sqrt(a)) * inverse * p;
    const float clipped = b < -l1 ? -l1 : b > l1 ? l1 : b;
    p = (clipped - b) / (root * inverse + l2);
    a = grown;
  }
  float inverse, l1, l2, shrinkage;
};

// Updates a whole row. A row has one number as its slot.
struct RowwiseAdagrad {
  RowwiseAdagrad(const RowwiseAdagradSpec& spec, double learning_rate)
      : rate(static_cast<float>(learning_rate)),
        epsilon(static_cast<float>(spec.epsilon)),
        decay(static_cast<float>(spec.weight_decay)) {}
  MUSTER_KERNEL_INLINE void operator()(float* __restrict p, const float* __restrict g,
                                       int64_t width, float& sum) const {
    // Fixes the order of summation, which must not depend on the processor's vector width.
    constexpr int64_t kLanes = 8;
    float squares[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= width; i += kLanes)
      for (int64_t j = 0; j < kLanes; ++j) {
        const float one = g[i + j] + decay * p[i + j];
        squares[j] += one * one;
      }
    for (int64_t j = 0; i < width; ++i, ++j) {
      const float one = g[i] + decay * p[i];
      squares[j] += one * one;
    }
    float all = 0;
    for (const float lane : squares) all += lane;
    sum += all / static_cast<float>(width);
    const float size = rate / (std::sqrt(sum) + epsilon);
    for (i = 0; i < width; ++i) p[i] -= size * (g[i] + decay * p[i]);
  }
  float rate, epsilon, decay;
};

// For slots that the rule does not have, local values are used, which the compiler removes.
template <int kSlots, typename Rule>
MUSTER_KERNEL_INLINE void Loop(const Rule& rule, const UpdateRange& range) {
  float* __restrict p = range.parameter.data();
  const float* __restrict g = range.gradient.data();
  float* __restrict a = range.slots[0];
  float* __restrict b = range.slots[1];
  float* __restrict c = range.slots[2];
  const auto count = static_cast<int64_t>(range.parameter.size());
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    float unused_a = 0, unused_b = 0, unused_c = 0;
    if constexpr (kSlots == 0) rule(p[i], g[i], unused_a, unused_b, unused_c);
    if constexpr (kSlots == 1) rule(p[i], g[i], a[i], unused_b, unused_c);
    if constexpr (kSlots == 2) rule(p[i], g[i], a[i], b[i], unused_c);
    if constexpr (kSlots == 3) rule(p[i], g[i], a[i], b[i], c[i]);
  }
}

// Prefetches a later row, because the rows of a batch are scattered over the memory.
MUSTER_KERNEL_INLINE void FetchAhead(const RowUpdates& updates, size_t r, int64_t elements) {
  if (r + kPrefetchDistance >= updates.rows.size()) return;
  const char* next = reinterpret_cast<const char*>(updates.rows[r + kPrefetchDistance]);
  for (int64_t at = 0; at < elements * 4; at += 64) __builtin_prefetch(next + at, 1);
}

template <int kSlots, typename Rule>
MUSTER_KERNEL_INLINE void Loop(const Rule& rule, const RowUpdates& updates) {
  for (size_t r = 0; r < updates.rows.size(); ++r) {
    FetchAhead(updates, r, (1 + kSlots) * updates.width);
    float* row = updates.rows[r];
    const auto width = static_cast<size_t>(updates.width);
    Loop<kSlots>(rule, UpdateRange{{row, width},
                                   {updates.gradients + r * width, width},
                                   {row + width, row + 2 * width, row + 3 * width}});
  }
}

template <typename Where>
struct Update {
  double rate;
  int64_t step;
  const Where& where;
};

template <typename Where>
MUSTER_KERNEL_INLINE void Run(const SgdSpec& spec, const Update<Where>& u) {
  if (spec.momentum == 0) return Loop<0>(PlainSgd(spec, u.rate, u.step), u.where);
  if (spec.nesterov) return Loop<1>(NesterovSgd(spec, u.rate, u.step), u.where);
  Loop<1>(MomentumSgd(spec, u.rate, u.step), u.where);
}
template <typename Where>
MUSTER_KERNEL_INLINE void Run(const AdamSpec& spec, const Update<Where>& u) {
  if (spec.amsgrad) return Loop<3>(Adam<true>(spec, u.rate, u.step), u.where);
  Loop<2>(Adam<false>(spec, u.rate, u.step), u.where);
}
template <typename Where>
MUSTER_KERNEL_INLINE void Run(const AdagradSpec& spec, const Update<Where>& u) {
  Loop<1>(Adagrad(spec, u.rate, u.step), u.where);
}
template <typename Where>
MUSTER_KERNEL_INLINE void Run(const RmsPropSpec& spec, const Update<Where>& u) {
  if (spec.centered && spec.momentum > 0)
    return Loop<3>(RmsProp<true, true>(spec, u.rate, u.step), u.where);
  if (spec.centered) return Loop<2>(RmsProp<true, false>(spec, u.rate, u.step), u.where);
  if (spec.momentum > 0) return Loop<2>(RmsProp<false, true>(spec, u.rate, u.step), u.where);
  Loop<1>(RmsProp<false, false>(spec, u.rate, u.step), u.where);
}
template <typename Where>
MUSTER_KERNEL_INLINE void Run(const FtrlSpec& spec, const Update<Where>& u) {
  if (!FtrlUpdates(u.rate)) return;
  Loop<2>(Ftrl(spec, u.rate, u.step), u.where);
}
MUSTER_KERNEL_INLINE void Run(const RowwiseAdagradSpec& spec, const Update<RowUpdates>& u) {
  const RowwiseAdagrad rule(spec, u.rate);
  for (size_t r = 0; r < u.where.rows.size(); ++r) {
    FetchAhead(u.where, r, u.where.width + 1);
    float* row = u.where.rows[r];
    rule(row, u.where.gradients + static_cast<int64_t>(r) * u.where.width, u.where.width,
         row[u.where.width]);
  }
}
// Here the range is one row.
MUSTER_KERNEL_INLINE void Run(const RowwiseAdagradSpec& spec, const Update<UpdateRange>& u) {
  RowwiseAdagrad(spec, u.rate)(u.where.parameter.data(), u.where.gradient.data(),
                               static_cast<int64_t>(u.where.parameter.size()), *u.where.slots[0]);
}

template <typename Where>
MUSTER_KERNEL_INLINE void RunAny(const RuleSpec& rule, const Update<Where>& u) {
  switch (rule.index()) {
    case 0:
      return Run(*std::get_if<SgdSpec>(&rule), u);
    case 1:
      return Run(*std::get_if<AdamSpec>(&rule), u);
    case 2:
      return Run(*std::get_if<AdagradSpec>(&rule), u);
    case 3:
      return Run(*std::get_if<RmsPropSpec>(&rule), u);
    case 4:
      return Run(*std::get_if<FtrlSpec>(&rule), u);
    case 5:
      return Run(*std::get_if<RowwiseAdagradSpec>(&rule), u);
  }
}
static_assert(std::variant_size_v<RuleSpec> == 6, "each rule has a case above");

#define MUSTER_KERNEL(name, attributes)                                                         \
  attributes void name(const RuleSpec& rule, double rate, int64_t step, const UpdateRange& u) { \
    RunAny<UpdateRange>(rule, {rate, step, u});                                                 \
  }
#define MUSTER_ROW_KERNEL(name, attributes)                                                    \
  attributes void name(const RuleSpec& rule, double rate, int64_t step, const RowUpdates& u) { \
    RunAny<RowUpdates>(rule, {rate, step, u});                                                 \
  }

// There is no early exit, because it would prevent vectorization.
#define MUSTER_FINITE_KERNEL(name, attributes)                   \
  attributes bool name(const float* values, int64_t count) {     \
    uint32_t found = 0;                                          \
    for (int64_t i = 0; i < count; ++i) {                        \
      const auto bits = __builtin_bit_cast(uint32_t, values[i]); \
      found |= (bits & 0x7f800000) == 0x7f800000 ? 1u : 0u;      \
    }                                                            \
    return found == 0;                                           \
  }

MUSTER_FOR_EACH_PROCESSOR(MUSTER_FINITE_KERNEL, Finite)
MUSTER_FOR_EACH_PROCESSOR(MUSTER_KERNEL, Update)
MUSTER_FOR_EACH_PROCESSOR(MUSTER_ROW_KERNEL, UpdateRows)

}  // namespace

std::vector<std::string> ShapedSlots(const RuleSpec& rule) {
  std::vector<std::string> names = SlotNames(rule);
  std::erase(names, "step");
  return names;
}

int64_t SlotElements(const RuleSpec& rule, int64_t width) {
  return std::holds_alternative<RowwiseAdagradSpec>(rule) ? 1 : width;
}

std::vector<UpdateKernel> AvailableKernels() {
  std::vector<UpdateKernel> kernels = {UpdateBaseline};
#if defined(__x86_64__)
  if (ProcessorHasAvx2()) kernels.push_back(UpdateAvx2);
  if (ProcessorHasAvx512()) kernels.push_back(UpdateAvx512);
#endif
  return kernels;
}

void ApplyUpdate(const RuleSpec& rule, double learning_rate, int64_t step,
                 const UpdateRange& range) {
  static const UpdateKernel best = AvailableKernels().back();
  best(rule, learning_rate, step, range);
}

void ApplyDifference(double weight, std::span<float> parameter, std::span<const float> difference) {
  const auto w = static_cast<float>(weight);
  const float keep = std::max(0.f, 1 - w);
  for (size_t i = 0; i < parameter.size(); ++i)
    parameter[i] = std::max(parameter[i] - w * difference[i], keep * parameter[i]);
}

bool AllFinite(std::span<const float> values) {
  static const auto kernel = MUSTER_CHOOSE_KERNEL(Finite);
  return kernel(values.data(), static_cast<int64_t>(values.size()));
}

void CopyPastCaches(std::span<const float> from, float* to) {
#if defined(__x86_64__)
  constexpr size_t kLine = 16;  // Floats of a cache line.
  const size_t unaligned = reinterpret_cast<uintptr_t>(to) / sizeof(float) % kLine;
  const size_t head = std::min(from.size(), unaligned == 0 ? 0 : kLine - unaligned);
  to = std::copy_n(from.data(), head, to);
  from = from.subspan(head);
  for (; from.size() >= kLine; from = from.subspan(kLine), to += kLine) {
    const __m128 a = _mm_loadu_ps(from.data()), b = _mm_loadu_ps(from.data() + 4),
                 c = _mm_loadu_ps(from.data() + 8), d = _mm_loadu_ps(from.data() + 12);
    _mm_stream_ps(to, a);
    _mm_stream_ps(to + 4, b);
    _mm_stream_ps(to + 8, c);
    _mm_stream_ps(to + 12, d);
  }
  _mm_sfence();
#endif
  std::copy(from.begin(), from.end(), to);
}

void ApplyRowUpdates(const RuleSpec& rule, double learning_rate, int64_t step,
                     const RowUpdates& updates) {
  static const auto best = MUSTER_CHOOSE_KERNEL(UpdateRows);
  best(rule, learning_rate, step, updates);
}

}  // namespace muster
