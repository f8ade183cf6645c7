// The Work of a call that failed at its issue: an invalid call, or a call on a poisoned
// communicator.
#pragma once

#include <utility>

#include "common/collective/communicator.h"

namespace muster {

class FailedWork : public Work {
 public:
  explicit FailedWork(absl::Status status) : status_(std::move(status)) {}
  absl::Status Wait() override { return status_; }
  bool Done() const override { return true; }

 private:
  const absl::Status status_;
};

}  // namespace muster
