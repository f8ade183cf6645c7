// A wall clock that a test can set, for whole processes: a library for LD_PRELOAD.
// $MUSTER_TEST_CLOCK names a file of 8 bytes, the nanoseconds by which CLOCK_REALTIME is off;
// a test that writes another number there makes a step of the clock, for all processes at once, as
// on a host. The monotonic clock continues unchanged.
//
// A wait until a point of wall-clock time (abseil by futex, pthread_cond_timedwait,
// sem_timedwait) sees the step too, as the kernel would let it: a step backwards makes the wait
// longer, one forwards ends it.
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace {

constexpr int64_t kSecond = 1'000'000'000;
// How late a wait may see a step.
constexpr int64_t kSlice = 20'000'000;
// Times of the monotonic clock are since the host's start: years less than those of the wall clock.
constexpr int64_t kFirstWallTime = 1'000'000'000 * kSecond;

// errno stays as it is: the caller's libc is not asked, for its own clock_gettime is this one's.
long Call(long number, long a, long b, long c, long d = 0, long e = 0, long f = 0) {
  long result = number;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

template <typename T>
long Word(T* pointer) {
  return reinterpret_cast<long>(pointer);
}

int64_t Nanoseconds(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }
timespec Timespec(int64_t nanoseconds) {
  return {static_cast<time_t>(nanoseconds / kSecond), static_cast<long>(nanoseconds % kSecond)};
}

int64_t KernelTime(clockid_t clock) {
  timespec time{};
  Call(SYS_clock_gettime, clock, Word(&time), 0);
  return Nanoseconds(time);
}

const std::atomic<int64_t>* MapOffset() {
  static const std::atomic<int64_t> kNone = 0;
  const char* path = getenv("MUSTER_TEST_CLOCK");
  if (path == nullptr) return &kNone;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  void* const mapped =
      fd < 0 ? MAP_FAILED : mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  // A test that believes in steps which do not happen would show nothing.
  if (mapped == MAP_FAILED) abort();
  return static_cast<const std::atomic<int64_t>*>(mapped);
}

int64_t Offset() {
  static const std::atomic<int64_t>* const offset = MapOffset();
  return offset->load(std::memory_order_relaxed);
}

int64_t WallTime(clockid_t clock = CLOCK_REALTIME) { return KernelTime(clock) + Offset(); }

// One slice of a wait until `until` of the wall clock, as a point of monotonic time.
timespec SliceEnd(int64_t until) {
  return Timespec(KernelTime(CLOCK_MONOTONIC) + std::clamp<int64_t>(until - WallTime(), 0, kSlice));
}

// A futex's value is compared by each call: no wake is lost between two of them.
long WaitForFutex(uint32_t* word, int operation, uint32_t value, const timespec* until,
                  uint32_t mask) {
  while (true) {
    const timespec end = SliceEnd(Nanoseconds(*until));
    const long result =
        Call(SYS_futex, Word(word), operation & ~FUTEX_CLOCK_REALTIME, value, Word(&end), 0, mask);
    if (result != -ETIMEDOUT || WallTime() >= Nanoseconds(*until)) return result;
  }
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long result = Call(SYS_clock_gettime, clock, Word(time), 0);
  if (result < 0) {
    errno = static_cast<int>(-result);
    return -1;
  }
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
    *time = Timespec(Nanoseconds(*time) + Offset());
  return 0;
}

int gettimeofday(timeval* time, void* zone) noexcept {
  (void)zone;
  const int64_t now = WallTime();
  *time = {now / kSecond, now % kSecond / 1000};
  return 0;
}

time_t time(time_t* result) noexcept {
  const time_t now = WallTime() / kSecond;
  if (result != nullptr) *result = now;
  return now;
}

long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  const auto operation = static_cast<int>(a[1]);
  long result = 0;
  if (number == SYS_futex && a[3] != 0 && (operation & FUTEX_CLOCK_REALTIME) != 0 &&
      (operation & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET) {
    result = WaitForFutex(reinterpret_cast<uint32_t*>(a[0]), operation, static_cast<uint32_t>(a[2]),
                          reinterpret_cast<const timespec*>(a[3]), static_cast<uint32_t>(a[5]));
  } else {
    result = Call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  }
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}

// The condition variable does not tell by which clock it was made, the time does. Between two
// slices a signal may come: so each ends in a wake without a signal, which callers must expect.
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  if (Nanoseconds(*until) < kFirstWallTime)
    return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, until);
  if (WallTime() >= Nanoseconds(*until)) return ETIMEDOUT;
  const timespec end = SliceEnd(Nanoseconds(*until));
  const int result = pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &end);
  return result == ETIMEDOUT && WallTime() < Nanoseconds(*until) ? 0 : result;
}

int sem_timedwait(sem_t* semaphore, const timespec* until) {
  while (true) {
    const timespec end = SliceEnd(Nanoseconds(*until));
    const int result = sem_clockwait(semaphore, CLOCK_MONOTONIC, &end);
    if (result == 0 || errno != ETIMEDOUT || WallTime() >= Nanoseconds(*until)) return result;
  }
}

}  // extern "C"
