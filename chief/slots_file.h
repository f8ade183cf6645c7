// optimizer.safetensors of a checkpoint, written in the pieces in which parameter servers send it,
// in any order, so that this process needs the memory for none of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/checkpoint/checkpoint.h"
#include "muster/status.h"

namespace muster {

// Put, Gather and Count: any thread.
class SlotsFile {
 public:
  static absl::StatusOr<std::unique_ptr<SlotsFile>> Make(
      const std::vector<checkpoint::TensorInfo>& tensors,
      std::shared_ptr<checkpoint::StagedFile> file);

  // Bytes of a tensor, by its index, from `begin` on. The first error is Complete's.
  void Put(size_t tensor, int64_t begin, std::string_view bytes);
  // Of a tensor that servers hold in another order than files: keeps the bytes until the last ones
  // have come; then all of them, in the servers' order, to be Put in the file's. Else "".
  std::string Gather(size_t tensor, int64_t begin, std::string_view bytes);
  // Of a float32 scalar: the largest that came is its value.
  void Count(size_t tensor, int64_t value);
  // Writes the scalars: the file, which this gives up, has all its bytes then, and is to be
  // finished.
  absl::StatusOr<std::shared_ptr<checkpoint::StagedFile>> Complete();

 private:
  struct Gathered {
    std::string bytes;
    int64_t left = 0;
  };

  std::shared_ptr<checkpoint::StagedFile> file_;
  std::vector<int64_t> begins_, bytes_;  // of the tensors
  absl::Mutex mu_;
  std::map<size_t, Gathered> gathered_ ABSL_GUARDED_BY(mu_);
  std::map<size_t, int64_t> counts_ ABSL_GUARDED_BY(mu_);
  absl::Status written_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster
