// FencedFiles writes files of model_dir. A chief is superseded if another chief has taken its
// model_dir (owner.h). FencedFiles prevents a superseded chief from changing files, even if the
// chief was frozen between its check of the ownership and the write. Thread-safe.
//
// FencedFiles::Write has four steps. It writes a temporary file whose name contains the chief's
// term (a number above the terms of all earlier owners). It checks that this chief still owns
// model_dir. It removes the temporary files of earlier terms. It renames its temporary file. If a
// superseded chief wakes after the third step of its successor, the superseded chief's temporary
// file no longer exists, so its rename fails.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "muster/json.h"
#include "muster/status.h"

namespace muster::chief {

class FencedFiles {
 public:
  // `fence` calls Owner::Check. It is null if no other chief can take the folder. `term` is
  // Owner::term().
  FencedFiles(std::function<absl::Status()> fence, uint32_t term)
      : fence_(std::move(fence)), term_(term) {}

  absl::Status Check() const { return fence_ ? fence_() : absl::OkStatus(); }
  // Writes the file atomically. Returns Superseded if another chief owns the folder. Other errors
  // name the path: kUnavailable if the disk is full or does not answer, else a ConfigurationError.
  absl::Status Write(const std::string& path, const Json& json) const;
  // Removes the file. Returns OK if the file does not exist.
  absl::Status Remove(const std::string& path) const;

 private:
  std::string TemporaryPath(const std::string& path) const;
  void RemoveEarlierTemporaries(const std::string& path) const;

  const std::function<absl::Status()> fence_;
  const uint32_t term_;
};

}  // namespace muster::chief
