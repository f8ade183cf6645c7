// The checkpoints of one model_dir, in `<model_dir>/checkpoints`. Only one process, the owner,
// writes there. Any process may read at the same time.
//
// Store::Write publishes a checkpoint in four steps. It writes and syncs all files under
// `.staging/<token>/`. Then it calls StoreOptions::fence, renames the folder to its final name, and
// syncs the directory. An owner creates its staging folder when it opens the store. A new owner
// removes the staging folders of earlier owners, so a rename by an earlier owner fails.
//
// `latest` and `best` are text files with the name of a checkpoint. They are replaced in the same
// way. A checkpoint is deleted in two steps: it is renamed into the staging folder, then removed.
// docs/checkpoints.md has the reasons.
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

// The path of one checkpoint (`single`), or of a `checkpoints` folder.
struct Place {
  std::string path;
  bool single = false;
};
// Finds out what `path` names: a checkpoint, a `checkpoints` folder, or a model_dir that contains
// one. Returns nullopt if `path` does not exist or is none of these.
absl::StatusOr<std::optional<Place>> FindCheckpoints(FileSystem& files, const std::string& path);

struct CheckpointInfo {
  std::string name, path;
  int64_t step = 0;
  int64_t bytes = 0;  // The size of all files, according to the manifest.
  // OK if the checkpoint is complete. Otherwise one sentence says what is missing, short or
  // damaged.
  absl::Status health;
};
// Lists the checkpoints in `directory`, in ascending order of steps. With `verify`, reads every
// byte and compares checksums. Otherwise, only checks the manifest and the sizes of files. Returns
// an empty list if `directory` does not exist.
absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(FileSystem& files,
                                                            const std::string& directory,
                                                            bool verify);
// Inspects the checkpoint in the directory `path`. The directory may have any name.
CheckpointInfo InspectCheckpoint(FileSystem& files, const std::string& path, bool verify);
// kRead reads the tensors of model and optimizer into memory. kLeft leaves them in their open
// files, from which they are read piece by piece later (row_source.h).
enum class Bytes { kRead, kLeft };
struct Reading {
  Bytes bytes = Bytes::kRead;
  // Polled while files are checked. Once it returns true, a file that stays open is not checked
  // before its first byte is read.
  std::function<bool()> check_later = nullptr;
};
// Reads the checkpoint in the directory `path`, and checks every byte. Returns a DataError that
// says what is damaged.
absl::StatusOr<Snapshot> ReadCheckpoint(FileSystem& files, const std::string& path,
                                        const Reading& reading = {});
// The contents of a checkpoint without the bytes of the tensors.
struct Contents {
  TrainingState state;
  std::vector<TensorInfo> model, optimizer, replica_buffers;
  std::map<std::string, std::vector<TensorInfo>> kept;    // The weights that each callback keeps.
  std::map<std::string, std::vector<TensorInfo>> tables;  // By name of the file.
};
absl::StatusOr<Contents> ReadContents(FileSystem& files, const std::string& path);
// Reads the checkpoint at `path`, or the newest complete one of a `checkpoints` folder or a
// model_dir. `damaged` receives one sentence for each damaged checkpoint. Returns nullopt if there
// is no checkpoint, and a DataError if all checkpoints are damaged. Any other error is an error of
// the file system: the checkpoints may be complete.
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
  // The number of newest checkpoints to keep. The best one and pinned ones are kept in addition.
  int keep = 3;
  // Checks that this process is still the owner. Called right before each rename that publishes. An
  // error (Superseded) prevents the rename.
  std::function<absl::Status()> fence;
};

// Removes the staging folders of earlier owners. After that, they can no longer publish or delete
// checkpoints. A new owner calls this before it decides which checkpoint to restore. Store::Open
// calls it again. `fence` is StoreOptions::fence.
absl::Status RemoveStaging(FileSystem& files, const std::string& directory,
                           const std::function<absl::Status()>& fence);

class Store {
 public:
  // Creates the directory if it is missing, and calls RemoveStaging. Renames damaged checkpoints to
  // "damaged-<name>". These are the incomplete ones, and all those above `restored_step`: a
  // complete one would have been restored. `restored_step` is -1 if none was restored.
  static absl::StatusOr<std::unique_ptr<Store>> Open(FileSystem& files, StoreOptions options,
                                                     int64_t restored_step);
  virtual ~Store() = default;  // Removes the staging folder.

  // Writes and publishes a checkpoint, and updates `latest`. Deletes the oldest checkpoints, so
  // that StoreOptions::keep remain. Returns the path of the new checkpoint.
  //
  // If the step has a checkpoint already, returns OK and changes nothing. With Snapshot::replaces,
  // replaces that checkpoint instead, even if it is pinned. If the new weights are of another step,
  // `best` no longer names the checkpoint.
  //
  // After an error, all older checkpoints are unchanged. The next Write removes files that are left
  // in the staging folder. Returns codes of the file system (file_system.h), Superseded, or the
  // error of the fence. The message is "could not save checkpoint step-00000500: ...".
  virtual absl::StatusOr<std::string> Write(const Snapshot& snapshot) = 0;
  // Creates a file for a later checkpoint, for data that does not fit in memory. `name` is its name
  // in the checkpoint. May be called while another thread is in Write. Returns the same errors as
  // Write.
  virtual absl::StatusOr<std::shared_ptr<StagedFile>> StageFile(const std::string& name) = 0;
  // Returns whether a checkpoint of `step` with this value of `metric` would be better than `best`.
  // Any checkpoint is better than a missing `best`, or a `best` by another metric. NaN is never
  // better.
  virtual bool IsBetter(int64_t step, const std::string& metric, double value,
                        bool larger_is_better) const = 0;
  // Makes the checkpoint of `step` the `best` one if IsBetter. The `best` checkpoint is never
  // deleted. Returns whether this checkpoint is `best` now. Returns false if it does not exist.
  virtual absl::StatusOr<bool> MarkBest(int64_t step, const std::string& metric, double value,
                                        bool larger_is_better) = 0;
  // Prevents the deletion of a checkpoint until Unpin, while the checkpoint is evaluated or
  // streamed. Write may still replace the checkpoint; its manifest then differs. Returns false if
  // the checkpoint does not exist.
  virtual bool Pin(int64_t step) = 0;
  virtual void Unpin(int64_t step) = 0;
  // Returns the steps of the published checkpoints, in ascending order.
  virtual std::vector<int64_t> steps() const = 0;
};

}  // namespace muster::checkpoint
