// A program throws a StatusError to end the job with an exit code other than 1.
//
//   throw muster::StatusError(muster::ConfigurationError("program_args.classes is 3, but ..."));
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "muster/status.h"

namespace muster {

// An exception that holds an absl::Status. If a program throws a StatusError, the job ends with the
// Status's message and exit code (muster/status.h).
class StatusError : public std::exception {
 public:
  explicit StatusError(absl::Status status) : status_(std::move(status)), text_(Message(status_)) {}
  const absl::Status& status() const { return status_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  absl::Status status_;
  std::string text_;
};
inline void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) throw StatusError(status);
}

}  // namespace muster
