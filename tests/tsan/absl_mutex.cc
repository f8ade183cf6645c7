// Debian's abseil is not built for the thread sanitizer, which therefore knows nothing of what
// absl::Mutex orders. These wrappers (linked with --wrap) tell it. Thread sanitizer builds only.
#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/mutex.h"

extern "C" {

// abseil's own lock-order graph, under a spin lock of its own.
const char* __tsan_default_suppressions() { return "race:GraphCycles::InsertEdge\n"; }

// gRPC and protobuf are not built for it either: what they do among themselves looks like races.
const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }

void __real__ZN4absl7debian35Mutex4LockEv(void*);
void __real__ZN4absl7debian35Mutex6UnlockEv(void*);
void __real__ZN4absl7debian35Mutex10ReaderLockEv(void*);
void __real__ZN4absl7debian35Mutex12ReaderUnlockEv(void*);
void __real__ZN4absl7debian37CondVar4WaitEPNS0_5MutexE(void*, void*);
bool __real__ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE(void*, void*,
                                                                                 absl::Duration);

void __wrap__ZN4absl7debian35Mutex4LockEv(void* mutex) {
  __real__ZN4absl7debian35Mutex4LockEv(mutex);
  __tsan_acquire(mutex);
}

void __wrap__ZN4absl7debian35Mutex6UnlockEv(void* mutex) {
  __tsan_release(mutex);
  __real__ZN4absl7debian35Mutex6UnlockEv(mutex);
}

// Readers are told of each other, too: what one of them writes would not be found.
void __wrap__ZN4absl7debian35Mutex10ReaderLockEv(void* mutex) {
  __real__ZN4absl7debian35Mutex10ReaderLockEv(mutex);
  __tsan_acquire(mutex);
}

void __wrap__ZN4absl7debian35Mutex12ReaderUnlockEv(void* mutex) {
  __tsan_release(mutex);
  __real__ZN4absl7debian35Mutex12ReaderUnlockEv(mutex);
}

void __wrap__ZN4absl7debian37CondVar4WaitEPNS0_5MutexE(void* variable, void* mutex) {
  __tsan_release(mutex);
  __real__ZN4absl7debian37CondVar4WaitEPNS0_5MutexE(variable, mutex);
  __tsan_acquire(mutex);
}

bool __wrap__ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE(
    void* variable, void* mutex, absl::Duration limit) {
  __tsan_release(mutex);
  const bool timed_out =
      __real__ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE(variable, mutex,
                                                                                  limit);
  __tsan_acquire(mutex);
  return timed_out;
}

}  // extern "C"
