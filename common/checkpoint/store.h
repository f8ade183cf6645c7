// The checkpoints of one model_dir, in `<model_dir>/checkpoints`. One process, the owner, writes.
// Any process may read meanwhile (the reading functions below).
//
// Write publishes a checkpoint in four steps. It writes and syncs everything under
// `.staging/<token>/`. It then calls Options::fence, makes one rename, and syncs the directory. The
// owner makes its staging folder when it opens the store, and the next owner removes it. The rename
// of a superseded owner fails, because its staging folder is gone.
//
// `latest` and `best` are text files with a directory's name, and are replaced in the same way. A
// deletion first renames into the staging folder. docs/checkpoints.md has the reasons.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/files/file_system.h"

namespace muster::checkpoint {

// ---- Reading: any process, thread-safe.

// The target of a path: one checkpoint, or a folder of checkpoints (the `checkpoints` folder
// itself, or that of a model_dir).
struct Place {
  std::string path;
  bool single = false;
};
// Returns nullopt where `path` does not exist or is none of these.
absl::StatusOr<std::optional<Place>> FindCheckpoints(FileSystem& files, const std::string& path);

struct CheckpointInfo {
  std::string name, path;
  int64_t step = 0;
  int64_t bytes = 0;  // Of all files, from the manifest.
  // OK: complete. An error says in one sentence what is missing, short or damaged.
  absl::Status health;
};
// Lists the checkpoints, ascending by step. `verify` reads every byte and compares checksums.
// Otherwise only sizes and the manifest are checked. A directory that does not exist has none.
absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(FileSystem& files,
                                                            const std::string& directory,
                                                            bool verify);
// Inspects one checkpoint by its own directory, whose name may differ from that of its step.
CheckpointInfo InspectCheckpoint(FileSystem& files, const std::string& path, bool verify);
// How to read one checkpoint by its own directory. Every byte is checked, and a DataError says what
// is damaged. With kLeft, the tensors of model and optimizer stay in their open files, to be read
// piece by piece (row_source.h).
enum class Bytes { kRead, kLeft };
struct Reading {
  Bytes bytes = Bytes::kRead;
  // Polled during the check. Once it is true, files that stay open are checked only when the first
  // of their bytes is read.
  std::function<bool()> check_later = nullptr;
};
absl::StatusOr<Snapshot> ReadCheckpoint(FileSystem& files, const std::string& path,
                                        const Reading& reading = {});
// Names, types and shapes without the bytes: of model.safetensors, of optimizer.safetensors, and of
// replica_buffers.safetensors where it exists.
struct Contents {
  TrainingState state;
  std::vector<TensorInfo> model, optimizer, replica_buffers;
  std::map<std::string, std::vector<TensorInfo>> kept;    // By callback.
  std::map<std::string, std::vector<TensorInfo>> tables;  // By file.
};
absl::StatusOr<Contents> ReadContents(FileSystem& files, const std::string& path);
// Reads `path`: a checkpoint, a `checkpoints` folder or a model_dir. From a folder it reads the
// newest complete checkpoint, and `damaged` receives one sentence for each damaged one. Returns
// nullopt where there is no checkpoint. Returns a DataError where all checkpoints are damaged. Any
// other error is the file system's, and says nothing about the checkpoints.
absl::StatusOr<std::optional<Snapshot>> ReadNewest(FileSystem& files, const std::string& path,
                                                   std::vector<std::string>* damaged,
                                                   const Reading& reading = {});
// The contents of `<directory>/latest` and `<directory>/best`. nullopt where the file is missing or
// cannot be parsed.
struct BestMark {
  int64_t step = 0;
  std::string metric;
  double value = 0;
};
std::optional<int64_t> ReadLatest(FileSystem& files, const std::string& directory);
std::optional<BestMark> ReadBest(FileSystem& files, const std::string& directory);

// ---- Writing: only the owner. Thread-safe, except that only one thread at a time may call Write.

struct StoreOptions {
  std::string directory;  // The folder <model_dir>/checkpoints.
  std::string token;      // Unique to this owner: letters and digits.
  // Number of newest checkpoints kept, besides the best and the pinned ones.
  int keep = 3;
  // Called right before each publishing rename. An error (Superseded) prevents the rename.
  std::function<absl::Status()> fence;
};

// Removes what earlier owners left in `.staging`, so that none of them can publish or delete any
// more. A new owner calls it first, before it reads what to restore. Open calls it again. `fence`
// is StoreOptions::fence.
absl::Status RemoveStaging(FileSystem& files, const std::string& directory,
                           const std::function<absl::Status()>& fence);

class Store {
 public:
  // Makes the directory and removes what other owners left in `.staging`. Renames checkpoints above
  // `restored_step` (-1: none was restored) to "damaged-<name>", because a complete one would have
  // been restored. Renames older ones that lack a file or a part of one as well.
  static absl::StatusOr<std::unique_ptr<Store>> Open(FileSystem& files, StoreOptions options,
                                                     int64_t restored_step);
  virtual ~Store() = default;  // Removes its staging folder.

  // Writes and publishes a checkpoint, updates `latest`, and deletes the oldest checkpoints above
  // `keep`. Returns its path.
  //
  // After an error all older checkpoints are unchanged. A staging folder may be left, which the
  // next Write removes. An existing checkpoint of the same step is left unchanged (OK). A snapshot
  // with `replaces` set replaces it, even where it is pinned. If that snapshot has the weights of
  // another step, `best` no longer names the checkpoint.
  //
  // Errors: the file system's codes (file_system.h), Superseded, and the fence's. The message is a
  // sentence, "could not save checkpoint step-00000500: ...".
  virtual absl::StatusOr<std::string> Write(const Snapshot& snapshot) = 0;
  // Begins a file of a later checkpoint under its final name, for data larger than memory.
  // Thread-safe, also while another checkpoint is written. Errors are those of Write.
  virtual absl::StatusOr<std::shared_ptr<StagedFile>> StageFile(const std::string& name) = 0;
  // True where a checkpoint of `step` with that value would be better than the current `best`. A
  // missing `best`, or one by another metric, is always worse. NaN is never better.
  virtual bool IsBetter(int64_t step, const std::string& metric, double value,
                        bool larger_is_better) const = 0;
  // Makes the checkpoint `best`, which is never deleted, where it is better than the current one.
  // Returns true where it is the best now. Returns false, without an error, where the checkpoint of
  // that step is gone.
  virtual absl::StatusOr<bool> MarkBest(int64_t step, const std::string& metric, double value,
                                        bool larger_is_better) = 0;
  // Prevents the deletion of a checkpoint until Unpin, while it is evaluated or streamed. It may
  // still be replaced, which its manifest shows. Returns false where it is gone.
  virtual bool Pin(int64_t step) = 0;
  virtual void Unpin(int64_t step) = 0;
  virtual std::vector<int64_t> steps() const = 0;  // Published, ascending.
};

}  // namespace muster::checkpoint
