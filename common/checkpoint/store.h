// The checkpoints of one model_dir: `<model_dir>/checkpoints`. One process, the owner, writes;
// anybody reads (Reader functions below), while it writes.
//
// How a checkpoint appears: everything is written and synced under `.staging/<token>/`, which the
// owner makes when it opens the store and the next owner removes; then Options::fence is asked;
// then one rename, then the directory is synced. A superseded owner's rename fails, because its
// staging folder is gone. `latest` and `best`, text files with a directory's name, are replaced the
// same way; deleted is by a rename into the staging folder first. docs/checkpoints.md has the why.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/file_system.h"

namespace muster::checkpoint {

// ---- Reading: any process, any thread.

// Where `path` leads: to one checkpoint, or to a folder of them (its own, or that of a model_dir).
struct Place {
  std::string path;
  bool single = false;
};
// nullopt: `path` is not there, or is none of these.
absl::StatusOr<std::optional<Place>> FindCheckpoints(FileSystem& files, const std::string& path);

struct CheckpointInfo {
  std::string name, path;
  int64_t step = 0;
  int64_t bytes = 0;    // of all files, as the manifest says
  absl::Status health;  // OK: whole. Else one sentence: what is missing, short or damaged.
};
// Ascending by step. `verify`: reads every byte and compares checksums; else sizes and the manifest
// only. A directory that does not exist holds none.
absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(FileSystem& files,
                                                            const std::string& directory,
                                                            bool verify);
// Of one alone, by its own directory, which may have another name than its step's.
CheckpointInfo InspectCheckpoint(FileSystem& files, const std::string& path, bool verify);
// One checkpoint, by its own directory; every byte is checked. A DataError says what is damaged.
// kLeft: the tensors of model and optimizer stay in their files, which are open, to be read piece
// by piece (row_source.h).
enum class Bytes { kRead, kLeft };
struct Reading {
  Bytes bytes = Bytes::kRead;
  // Asked again and again: once it is true, files that stay open are checked when the first of
  // their bytes is read, and not before.
  std::function<bool()> check_later = nullptr;
};
absl::StatusOr<Snapshot> ReadCheckpoint(FileSystem& files, const std::string& path,
                                        const Reading& reading = {});
// Names, types and shapes without the bytes: of model.safetensors, of optimizer.safetensors, and of
// replica_buffers.safetensors where there is one.
struct Contents {
  TrainingState state;
  std::vector<TensorInfo> model, optimizer, replica_buffers;
  std::map<std::string, std::vector<TensorInfo>> kept;    // by callback
  std::map<std::string, std::vector<TensorInfo>> tables;  // by file
};
absl::StatusOr<Contents> ReadContents(FileSystem& files, const std::string& path);
// `path` is a checkpoint, a `checkpoints` folder or a model_dir; of the latter two the newest whole
// checkpoint is read, and those that are damaged are named in `damaged`, one sentence each.
// nullopt: there is none at all. A DataError: there are some, and all are damaged. Any other error
// is one of the file system, after which nobody knows.
absl::StatusOr<std::optional<Snapshot>> ReadNewest(FileSystem& files, const std::string& path,
                                                   std::vector<std::string>* damaged,
                                                   const Reading& reading = {});
// What `<directory>/latest` and `<directory>/best` say; nullopt where they are missing or
// illegible.
struct BestMark {
  int64_t step = 0;
  std::string metric;
  double value = 0;
};
std::optional<int64_t> ReadLatest(FileSystem& files, const std::string& directory);
std::optional<BestMark> ReadBest(FileSystem& files, const std::string& directory);

// ---- Writing: the owner. All methods may be called from any thread; Write by one at a time.

struct StoreOptions {
  std::string directory;  // <model_dir>/checkpoints
  std::string token;      // of this owner, of no other before it; letters and digits
  int keep = 3;           // newest ones that stay, besides the best and the pinned
  // Asked right before each publishing rename: an error (Superseded) keeps it from happening.
  std::function<absl::Status()> fence;
};

// Removes what owners before left in `.staging`: from then on none of them publishes anything, nor
// deletes. The new owner's first act, before it reads what to restore; Open does it again. `fence`
// is as StoreOptions'.
absl::Status RemoveStaging(FileSystem& files, const std::string& directory,
                           const std::function<absl::Status()>& fence);

class Store {
 public:
  // Makes the directory, removes what other owners left in `.staging`, and moves checkpoints above
  // `restored_step` (-1: none was restored) aside as "damaged-<name>": had they been whole, they
  // would have been restored. So are older ones that lack a file or a part of one.
  static absl::StatusOr<std::unique_ptr<Store>> Open(FileSystem& files, StoreOptions options,
                                                     int64_t restored_step);
  virtual ~Store() = default;  // Removes its staging folder.

  // Writes, publishes, moves `latest`, and deletes the oldest ones above `keep`. On an error all
  // older checkpoints are there as before; a staging folder may be left, which the next Write
  // removes. A checkpoint of that step that is there already is left as it is (OK), unless the
  // snapshot `replaces` it, also where it is pinned; `best` does not name it any more then, if it
  // has the weights of another step. Returns its path. Errors: the file system's codes (see there),
  // Superseded, and what the fence says; the message is a sentence, "could not save checkpoint
  // step-00000500: ...".
  virtual absl::StatusOr<std::string> Write(const Snapshot& snapshot) = 0;
  // Begins a file of a checkpoint that is to come, by the name that it will have there: for what is
  // larger than memory. Any thread, also while another checkpoint is written. Errors are Write's.
  virtual absl::StatusOr<std::shared_ptr<StagedFile>> StageFile(const std::string& name) = 0;
  // Whether a checkpoint of `step` with that value is better than `best` is now: an absent one, or
  // one by another metric, is always worse, NaN never better.
  virtual bool IsBetter(int64_t step, const std::string& metric, double value,
                        bool larger_is_better) const = 0;
  // It becomes `best`, which is never deleted, where it is better than the one before. True: it is
  // the best now. A step whose checkpoint is gone is no error: false.
  virtual absl::StatusOr<bool> MarkBest(int64_t step, const std::string& metric, double value,
                                        bool larger_is_better) = 0;
  // Until Unpin, that one is not deleted (it is being evaluated or streamed), though it may be
  // replaced: its manifest tells. False: it is gone.
  virtual bool Pin(int64_t step) = 0;
  virtual void Unpin(int64_t step) = 0;
  virtual std::vector<int64_t> steps() const = 0;  // published, ascending
};

}  // namespace muster::checkpoint
