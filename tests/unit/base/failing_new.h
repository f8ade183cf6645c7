// Makes one allocation of the process fail, for tests. failing_new.cc replaces operator new of the
// whole program.
#pragma once

#include <cstddef>
#include <string_view>

namespace muster::testing {

// Only one object may exist at a time.
class FailingNew {
 public:
  // The allocation that fails.
  struct Which {
    // The name of the allocating thread (pthread_setname_np). Empty: any thread except the one that
    // makes the FailingNew.
    std::string_view thread;
    int nth = 1;       // The number of the allocation from now on, from 1.
    size_t least = 0;  // Smaller allocations, in bytes, are not counted.
  };
  explicit FailingNew(const Which& which);
  ~FailingNew();
  FailingNew(const FailingNew&) = delete;
  FailingNew& operator=(const FailingNew&) = delete;

  bool failed() const;  // Returns whether the allocation has failed.
};

}  // namespace muster::testing
