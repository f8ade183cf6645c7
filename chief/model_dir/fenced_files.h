// FencedFiles writes files of model_dir and prevents a superseded chief from changing them. This
// holds even if that chief was frozen between its check of owner.json and the write. Thread-safe.
//
// A write first writes the file under a temporary name that has the chief's term. It then checks
// ownership and removes temporary files of earlier terms. Finally it renames the file. A superseded
// chief that wakes later therefore finds no temporary file to rename.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "muster/json.h"
#include "muster/status.h"

namespace muster::chief {

class FencedFiles {
 public:
  // `fence` is Owner::Check, or null if no other chief can take the folder. `term` is
  // Owner::epoch().
  FencedFiles(std::function<absl::Status()> fence, uint32_t term)
      : fence_(std::move(fence)), term_(term) {}

  absl::Status Check() const { return fence_ ? fence_() : absl::OkStatus(); }
  // Writes the file atomically. Returns Superseded if another chief owns the folder. Other errors
  // name the path: kUnavailable if the disk is full or does not answer, else a ConfigurationError.
  absl::Status Write(const std::string& path, const Json& json) const;
  // Returns OK also if the file does not exist.
  absl::Status Remove(const std::string& path) const;

 private:
  std::string PartOf(const std::string& path) const;
  void DropEarlierParts(const std::string& path) const;

  const std::function<absl::Status()> fence_;
  const uint32_t term_;
};

}  // namespace muster::chief
