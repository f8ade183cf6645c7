// SlotsFile writes optimizer.safetensors of a checkpoint from pieces that ps tasks send in any
// order. It never holds the whole file in memory.
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

namespace muster::chief {

// Put, Gather and Count are thread-safe.
class SlotsFile {
 public:
  static absl::StatusOr<std::unique_ptr<SlotsFile>> Make(
      const std::vector<checkpoint::TensorInfo>& tensors,
      std::shared_ptr<checkpoint::StagedFile> file);

  // Writes bytes of the tensor with this index at offset `begin`. Complete returns the first error.
  void Put(size_t tensor, int64_t begin, std::string_view bytes);
  // For tensors that the servers store in another element order than the file. Collects the bytes
  // and returns "" until the last ones have arrived. Then returns all bytes in the servers' order,
  // and the caller reorders them and calls Put.
  std::string Gather(size_t tensor, int64_t begin, std::string_view bytes);
  // For a float32 scalar. Its value in the file is the largest `value` of all calls.
  void Count(size_t tensor, int64_t value);
  // Writes the scalars and returns the file, which then has all its bytes. The caller must finish
  // the file.
  absl::StatusOr<std::shared_ptr<checkpoint::StagedFile>> Complete();

 private:
  struct Gathered {
    std::string bytes;
    int64_t left = 0;
  };

  std::shared_ptr<checkpoint::StagedFile> file_;
  std::vector<int64_t> begins_, bytes_;  // Indexed by tensor.
  absl::Mutex mu_;
  std::map<size_t, Gathered> gathered_ ABSL_GUARDED_BY(mu_);
  std::map<size_t, int64_t> counts_ ABSL_GUARDED_BY(mu_);
  absl::Status written_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::chief
