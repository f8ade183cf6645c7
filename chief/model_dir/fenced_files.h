// Writes files of model_dir such that a superseded chief cannot change them. This holds even if
// that chief was frozen between its check of owner.json and the write. Thread-safe. A write has
// three steps. First, the file is written under a temporary name with the chief's term. Second,
// ownership is checked. Third, temporary files of earlier terms are removed, so a frozen chief that
// wakes later finds nothing to rename.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "muster/json.h"
#include "muster/status.h"

namespace muster {

class FencedFiles {
 public:
  // `fence` is Owner::Check, or null if no other chief can take the folder. `term` is the owner's.
  FencedFiles(std::function<absl::Status()> fence, uint32_t term)
      : fence_(std::move(fence)), term_(term) {}

  absl::Status Check() const { return fence_ ? fence_() : absl::OkStatus(); }
  // Writes the file atomically. Returns Superseded if another chief owns the folder. Other errors
  // name the path: a ConfigurationError, or kUnavailable if the disk is full or does not answer.
  absl::Status Write(const std::string& path, const Json& json) const;
  // Returns OK also if the file does not exist.
  absl::Status Remove(const std::string& path) const;

 private:
  std::string PartOf(const std::string& path) const;
  void DropEarlierParts(const std::string& path) const;

  const std::function<absl::Status()> fence_;
  const uint32_t term_;
};

}  // namespace muster
