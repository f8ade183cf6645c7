// The memory that the threads of a group in one process share: a cell for each rank
// (common/collective/group/shared_memory_group.h), and the reason of the first rank that gives up.
// Internal.
#pragma once

#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/collective/group/shared_memory_group.h"

namespace muster::collective {

struct ThreadBoard {
  explicit ThreadBoard(int size) : cells(size) {}
  std::vector<Cell> cells;

  // Records `why` if no rank has given up yet. Returns the reason of the first rank that gave up.
  absl::Status Keep(const absl::Status& why) {
    absl::MutexLock lock(&mutex);
    if (reason.ok()) reason = why;
    return reason;
  }
  absl::Mutex mutex;
  absl::Status reason ABSL_GUARDED_BY(mutex);
};

inline SharedMemoryGroupOptions ThreadGroupOptions(ThreadBoard& board, int rank,
                                                   std::vector<std::string> names) {
  SharedMemoryGroupOptions options;
  options.cells = board.cells;
  options.rank = rank;
  options.names = std::move(names);
  for (int r = static_cast<int>(options.names.size()); r < static_cast<int>(board.cells.size());
       ++r) {
    options.names.push_back(RankName({}, r));
  }
  options.address = [](int, int64_t where) { return reinterpret_cast<std::byte*>(where); };
  return options;
}

}  // namespace muster::collective
