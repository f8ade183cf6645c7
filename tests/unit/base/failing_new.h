// Allocations that fail, for tests. failing_new.cc replaces operator new of the whole program.
#pragma once

#include <cstddef>
#include <string_view>

namespace muster::testing {

// One at a time.
class FailingNew {
 public:
  struct Which {
    std::string_view thread;  // its name (pthread_setname_np); empty: any but the one that asks
    int nth = 1;              // of that thread, from now on
    size_t least = 0;         // bytes; smaller ones do not count
  };
  explicit FailingNew(const Which& which);
  ~FailingNew();
  FailingNew(const FailingNew&) = delete;
  FailingNew& operator=(const FailingNew&) = delete;

  bool failed() const;  // that one has been asked for
};

}  // namespace muster::testing
