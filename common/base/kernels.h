// Macros that compile a kernel (a loop over bulk data) for several instruction sets. At run time,
// MUSTER_CHOOSE_KERNEL selects the best version for the processor. GCC's target_clones is not used,
// because its ifunc resolvers run before a sanitizer's runtime is initialized. Include this file
// only in .cc files.
//
//   #define KERNEL(name, attributes) attributes void name(float* x) { ... }
//   MUSTER_FOR_EACH_PROCESSOR(KERNEL, Scale)   // defines ScaleBaseline, ScaleAvx2, ScaleAvx512
//   ...
//   static const auto kernel = MUSTER_CHOOSE_KERNEL(Scale);
//
// Functions that a kernel calls must be MUSTER_KERNEL_INLINE.
#pragma once

#if defined(__x86_64__)

#define MUSTER_KERNEL_INLINE inline __attribute__((always_inline))
#define MUSTER_TARGET_AVX2 __attribute__((target("avx2")))
#if defined(__clang__)
// Clang supports neither prefer-vector-width as an attribute nor GCC's pragmas.
#pragma clang diagnostic ignored "-Wunknown-pragmas"
#define MUSTER_TARGET_AVX512 __attribute__((target("avx2,avx512f,avx512bw,avx512vl,avx512dq")))
#else
#define MUSTER_TARGET_AVX512 \
  __attribute__((target("avx2,avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")))
#endif
#define MUSTER_FOR_EACH_PROCESSOR(KERNEL, name) \
  KERNEL(name##Baseline, )                      \
  KERNEL(name##Avx2, MUSTER_TARGET_AVX2)        \
  KERNEL(name##Avx512, MUSTER_TARGET_AVX512)
#define MUSTER_CHOOSE_KERNEL(name)               \
  (::muster::ProcessorHasAvx512() ? name##Avx512 \
   : ::muster::ProcessorHasAvx2() ? name##Avx2   \
                                  : name##Baseline)

namespace muster {
inline bool ProcessorHasAvx2() { return __builtin_cpu_supports("avx2"); }
inline bool ProcessorHasAvx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
}  // namespace muster

#else

#define MUSTER_KERNEL_INLINE inline
#define MUSTER_FOR_EACH_PROCESSOR(KERNEL, name) KERNEL(name##Baseline, )
#define MUSTER_CHOOSE_KERNEL(name) (name##Baseline)

#endif
