// SlotsFile writes optimizer.safetensors, the checkpoint file that has the optimizer slots of all
// variables. It receives pieces of the slots in any order, as ps tasks send them. It does not hold
// the whole file in memory.
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

  // Writes `bytes` into the tensor with the index `tensor` (an index of Make's `tensors`), at the
  // byte offset `begin`. If the write fails, Complete returns the error.
  void Put(size_t tensor, int64_t begin, std::string_view bytes);
  // Called for a tensor whose elements are in a different order on the servers than in the file.
  // Collects the bytes of the tensor. Returns "" until the last bytes have arrived. Then returns
  // all bytes in the order of the servers. The caller reorders the bytes and passes them to Put.
  std::string Gather(size_t tensor, int64_t begin, std::string_view bytes);
  // Called for a tensor that is a float32 scalar. The file gets the largest `value` of all calls.
  void Count(size_t tensor, int64_t value);
  // Writes the scalars and returns the complete file. Returns the first error of Put, if there was
  // one. The caller must call StagedFile::Finish.
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
