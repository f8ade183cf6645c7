// The Work for an operation that could not be issued, because the call was invalid or the
// communicator is poisoned.
#pragma once

#include <utility>

#include "common/collective/communicator.h"

namespace muster::collective {

class FailedWork : public Work {
 public:
  explicit FailedWork(absl::Status status) : status_(std::move(status)) {}
  absl::Status Wait() override { return status_; }
  bool Done() const override { return true; }

 private:
  const absl::Status status_;
};

}  // namespace muster::collective
