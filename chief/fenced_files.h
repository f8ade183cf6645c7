// Files of model_dir that a chief which was superseded must not touch, however long it was frozen
// between its look at owner.json and the write: a file is written beside its name first, under the
// chief's term; then ownership is looked at; then the files of earlier terms are taken away, so
// that the rename of one that wakes later finds nothing to rename. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "muster/json.h"
#include "muster/status.h"

namespace muster {

class FencedFiles {
 public:
  // `fence` is Owner::Check, null where nobody can take the folder; `term` the owner's own.
  FencedFiles(std::function<absl::Status()> fence, uint32_t term)
      : fence_(std::move(fence)), term_(term) {}

  absl::Status Check() const { return fence_ ? fence_() : absl::OkStatus(); }
  // The file appears whole or not at all. Superseded: another chief has the folder. Other errors
  // name the path: ConfigurationErrors, or kUnavailable where the disk is full or does not answer.
  absl::Status Write(const std::string& path, const Json& json) const;
  // OK as well where there is none.
  absl::Status Remove(const std::string& path) const;

 private:
  std::string PartOf(const std::string& path) const;
  void DropEarlierParts(const std::string& path) const;

  const std::function<absl::Status()> fence_;
  const uint32_t term_;
};

}  // namespace muster
