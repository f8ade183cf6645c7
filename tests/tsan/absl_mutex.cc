// Debian's abseil is not built for the thread sanitizer, which therefore knows nothing of what
// absl::Mutex orders. These wrappers (linked with --wrap) tell it. Thread sanitizer builds only.
#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/mutex.h"

namespace {

// While it exists, a call waits that gives up `mutex` and takes it again.
class Waiting {
 public:
  explicit Waiting(void* mutex) : mutex_(mutex) { __tsan_release(mutex_); }
  ~Waiting() { __tsan_acquire(mutex_); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  void* const mutex_;
};

// Tells the sanitizer that a condition is evaluated under the mutex: by the thread that awaits it,
// or by one that unlocks the mutex.
class HeldCondition {
 public:
  HeldCondition(void* mutex, const void* condition)
      : mutex_(mutex), condition_(static_cast<const absl::Condition*>(condition)) {}
  const absl::Condition* get() const { return &held_; }

 private:
  static bool Eval(HeldCondition* self) {
    __tsan_acquire(self->mutex_);
    const bool holds = self->condition_->Eval();
    __tsan_release(self->mutex_);
    return holds;
  }

  void* const mutex_;
  const absl::Condition* const condition_;
  const absl::Condition held_{&Eval, this};
};

}  // namespace

extern "C" {

// abseil's own lock-order graph, under a spin lock of its own. And what gRPC's headers do, whose
// other half is in a library that the sanitizer does not see.
const char* __tsan_default_suppressions() {
  return "race:GraphCycles::InsertEdge\n"
         "race_top:grpc::\n";
}

// gRPC and protobuf are not built for it either: what they do among themselves looks like races.
const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }

void __real__ZN4absl7debian35Mutex4LockEv(void*);
void __real__ZN4absl7debian35Mutex6UnlockEv(void*);
void __real__ZN4absl7debian35Mutex10ReaderLockEv(void*);
void __real__ZN4absl7debian35Mutex12ReaderUnlockEv(void*);
void __real__ZN4absl7debian37CondVar4WaitEPNS0_5MutexE(void*, void*);
bool __real__ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE(void*, void*,
                                                                                 absl::Duration);
bool __real__ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE(void*, void*,
                                                                              absl::Time);
bool __real__ZN4absl7debian35Mutex7TryLockEv(void*);
void __real__ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE(void*, const void*);
bool __real__ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE(
    void*, const void*, absl::Duration);
bool __real__ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE(void*,
                                                                                  const void*,
                                                                                  absl::Time);
void __real__ZN4absl7debian319ReleasableMutexLock7ReleaseEv(void*);

void __wrap__ZN4absl7debian35Mutex4LockEv(void* mutex) {
  __real__ZN4absl7debian35Mutex4LockEv(mutex);
  __tsan_acquire(mutex);
}

void __wrap__ZN4absl7debian35Mutex6UnlockEv(void* mutex) {
  __tsan_release(mutex);
  __real__ZN4absl7debian35Mutex6UnlockEv(mutex);
}

// tsan also sees an order between readers, so it does not find a write of one of them.
void __wrap__ZN4absl7debian35Mutex10ReaderLockEv(void* mutex) {
  __real__ZN4absl7debian35Mutex10ReaderLockEv(mutex);
  __tsan_acquire(mutex);
}

void __wrap__ZN4absl7debian35Mutex12ReaderUnlockEv(void* mutex) {
  __tsan_release(mutex);
  __real__ZN4absl7debian35Mutex12ReaderUnlockEv(mutex);
}

void __wrap__ZN4absl7debian37CondVar4WaitEPNS0_5MutexE(void* variable, void* mutex) {
  const Waiting waiting(mutex);
  return __real__ZN4absl7debian37CondVar4WaitEPNS0_5MutexE(variable, mutex);
}

bool __wrap__ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE(
    void* variable, void* mutex, absl::Duration limit) {
  const Waiting waiting(mutex);
  return __real__ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE(variable,
                                                                                     mutex, limit);
}

bool __wrap__ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE(void* variable,
                                                                              void* mutex,
                                                                              absl::Time deadline) {
  const Waiting waiting(mutex);
  return __real__ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE(variable, mutex,
                                                                                  deadline);
}

bool __wrap__ZN4absl7debian35Mutex7TryLockEv(void* mutex) {
  const bool locked = __real__ZN4absl7debian35Mutex7TryLockEv(mutex);
  if (locked) __tsan_acquire(mutex);
  return locked;
}

void __wrap__ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE(void* mutex, const void* condition) {
  const HeldCondition held(mutex, condition);
  const Waiting waiting(mutex);
  return __real__ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE(mutex, held.get());
}

bool __wrap__ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE(
    void* mutex, const void* condition, absl::Duration limit) {
  const HeldCondition held(mutex, condition);
  const Waiting waiting(mutex);
  return __real__ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE(
      mutex, held.get(), limit);
}

bool __wrap__ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE(
    void* mutex, const void* condition, absl::Time deadline) {
  const HeldCondition held(mutex, condition);
  const Waiting waiting(mutex);
  return __real__ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE(
      mutex, held.get(), deadline);
}

// The lock's first member is its mutex.
void __wrap__ZN4absl7debian319ReleasableMutexLock7ReleaseEv(void* lock) {
  __tsan_release(*static_cast<void**>(lock));
  __real__ZN4absl7debian319ReleasableMutexLock7ReleaseEv(lock);
}

}  // extern "C"
