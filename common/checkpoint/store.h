// The checkpoints of one model_dir, in `<model_dir>/checkpoints`. Only one process, the owner (a
// chief), writes there. Any process may read at the same time.
//
// Store::Write publishes a checkpoint in four steps. Write writes and syncs all files in the
// owner's staging folder, `.staging/<token>/`. Then Write calls StoreOptions::fence, renames the
// folder with the files to its final name, and syncs the directory. An owner creates its staging
// folder when it opens the store. A new owner removes the staging folders of earlier owners, so a
// rename by an earlier owner fails.
//
// `latest` and `best` are text files with the name of a checkpoint. The store replaces them in the
// same four steps. The store deletes a checkpoint in two steps: it renames the checkpoint into the
// staging folder, and then removes the files. docs/checkpoints.md has the reasons.
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

// ---- Reading. Any process may call these functions. Thread-safe.

// If `single` is true, the path of one checkpoint. Otherwise, the path of a `checkpoints` folder.
struct Place {
  std::string path;
  bool single = false;
};
// Finds out what `path` names: a checkpoint, a `checkpoints` folder, or a model_dir that contains a
// `checkpoints` folder. Returns nullopt if `path` does not exist or is none of these.
absl::StatusOr<std::optional<Place>> FindCheckpoints(FileSystem& files, const std::string& path);

struct CheckpointInfo {
  std::string name, path;
  int64_t step = 0;
  int64_t bytes = 0;  // The size of all files, according to the manifest.
  // OK if the checkpoint is complete. Otherwise one sentence says what is missing, short or
  // damaged.
  absl::Status health;
};
// Lists the checkpoints in `directory`, in ascending order of steps. If `verify` is true, reads
// every byte and compares checksums. If `verify` is false, checks only the manifest and the sizes
// of files. Returns an empty list if `directory` does not exist.
absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(FileSystem& files,
                                                            const std::string& directory,
                                                            bool verify);
// Inspects the checkpoint in the directory `path`, which may have any name. `verify` is as in
// ListCheckpoints.
CheckpointInfo InspectCheckpoint(FileSystem& files, const std::string& path, bool verify);
// Selects how ReadCheckpoint treats the bytes of the tensors of models and optimizers. kRead: reads
// the bytes into memory. kLeft: leaves the bytes in open files. The caller reads these bytes later,
// piece by piece (row_source.h).
enum class Bytes { kRead, kLeft };
struct Reading {
  Bytes bytes = Bytes::kRead;
  // ReadCheckpoint polls `check_later` while it verifies the checksum of a file that stays open.
  // After `check_later` has returned true, ReadCheckpoint skips the remaining verification. The
  // checksum of such a file is then verified when the caller first reads a non-scalar tensor of the
  // file.
  std::function<bool()> check_later = nullptr;
};
// Reads the checkpoint in the directory `path`, and checks every byte. Returns a DataError that
// says what is damaged.
absl::StatusOr<Snapshot> ReadCheckpoint(FileSystem& files, const std::string& path,
                                        const Reading& reading = {});
// The contents of a checkpoint without the bytes of the tensors.
struct Contents {
  SavedState state;
  std::vector<TensorInfo> model, optimizer, replica_buffers;
  std::map<std::string, std::vector<TensorInfo>> kept;    // The weights that each callback keeps.
  std::map<std::string, std::vector<TensorInfo>> tables;  // Keyed by the name of the file.
};
absl::StatusOr<Contents> ReadContents(FileSystem& files, const std::string& path);
// If `path` is a checkpoint, reads this checkpoint. If `path` is a `checkpoints` folder or a
// model_dir, reads the newest complete checkpoint in it. `damaged` receives one sentence for each
// damaged checkpoint. Returns nullopt if there is no checkpoint, and a DataError if all checkpoints
// are damaged. Any other error comes from the file system, and does not mean that a checkpoint is
// damaged.
absl::StatusOr<std::optional<Snapshot>> ReadNewest(FileSystem& files, const std::string& path,
                                                   std::vector<std::string>* damaged,
                                                   const Reading& reading = {});
// The contents of the file `best`: the best checkpoint, and the value of the metric that selected
// it.
struct BestMark {
  int64_t step = 0;
  std::string metric;
  double value = 0;
};
// Read `<directory>/latest` and `<directory>/best`. Return nullopt if the file is missing or cannot
// be parsed.
std::optional<int64_t> ReadLatest(FileSystem& files, const std::string& directory);
std::optional<BestMark> ReadBest(FileSystem& files, const std::string& directory);

// ---- Writing. Only the owner may write. Thread-safe, except that only one thread at a time may
// call Write.

struct StoreOptions {
  std::string directory;  // The folder <model_dir>/checkpoints.
  std::string token;      // Identifies this owner. Letters and digits.
  // The number of newest checkpoints to keep. The store also keeps the checkpoint that `best` names
  // and pinned checkpoints (Store::Pin).
  int keep = 3;
  // Checks that this process is still the owner. The store calls `fence` right before each rename
  // that publishes or deletes. An error prevents the rename. The error is Superseded if another
  // owner has replaced this process.
  std::function<absl::Status()> fence;
};

// Removes the staging folders of earlier owners. Afterwards, the earlier owners can no longer
// publish or delete checkpoints. A new owner calls RemoveStaging before it decides which checkpoint
// to restore. Store::Open calls it again. `fence` is StoreOptions::fence.
absl::Status RemoveStaging(FileSystem& files, const std::string& directory,
                           const std::function<absl::Status()>& fence);

class Store {
 public:
  // Creates the directory if it is missing, and calls RemoveStaging. `restored_step` is the step of
  // the newest complete checkpoint, from which the run resumes, or -1 if no checkpoint was
  // restored. Renames incomplete checkpoints to "damaged-<name>". Also renames every checkpoint
  // with a step above `restored_step`, because the run could not resume from such a checkpoint.
  static absl::StatusOr<std::unique_ptr<Store>> Open(FileSystem& files, StoreOptions options,
                                                     int64_t restored_step);
  virtual ~Store() = default;  // Removes the staging folder.

  // Writes and publishes a checkpoint, and updates `latest`. Deletes the oldest checkpoints, so
  // that StoreOptions::keep remain. Returns the path of the new checkpoint.
  //
  // If the step has a checkpoint already, keeps that checkpoint and returns its path. If
  // Snapshot::replaces is true, Write replaces the checkpoint instead, even if it is pinned. If the
  // new weights are of another step (CallbackRecord::weights_of), `best` no longer names the
  // checkpoint.
  //
  // After an error, all older checkpoints are unchanged. The next Write removes files that an error
  // has left in the staging folder. Returns an error of the file system (file_system.h),
  // Superseded, or the error of the fence. The message is "could not save checkpoint step-00000500:
  // ...".
  virtual absl::StatusOr<std::string> Write(const Snapshot& snapshot) = 0;
  // Creates a file for a later checkpoint, for data that does not fit in memory. `name` is the
  // file's name in the checkpoint. May be called while another thread is in Write. Returns the same
  // errors as Write.
  virtual absl::StatusOr<std::shared_ptr<StagedFile>> StageFile(const std::string& name) = 0;
  // Returns whether a checkpoint of `step` with this value of `metric` would be better than the
  // checkpoint that `best` names. NaN is never better. Any other value is better if `best` is
  // missing or was selected by another metric.
  virtual bool IsBetter(int64_t step, const std::string& metric, double value,
                        bool larger_is_better) const = 0;
  // If IsBetter returns true, makes `best` name the checkpoint of `step`, and returns true. Returns
  // false if IsBetter returns false, or if the checkpoint does not exist. The store never deletes
  // the checkpoint that `best` names.
  virtual absl::StatusOr<bool> MarkBest(int64_t step, const std::string& metric, double value,
                                        bool larger_is_better) = 0;
  // Pins a checkpoint: the store does not delete the checkpoint before Unpin. A caller pins a
  // checkpoint while an evaluation uses the checkpoint. Write may still replace a pinned checkpoint
  // and thereby change its manifest. Returns false if the checkpoint does not exist.
  virtual bool Pin(int64_t step) = 0;
  virtual void Unpin(int64_t step) = 0;
  // Returns the steps of the published checkpoints, in ascending order.
  virtual std::vector<int64_t> steps() const = 0;
};

}  // namespace muster::checkpoint
