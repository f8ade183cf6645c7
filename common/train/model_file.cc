#include "common/train/model_file.h"

#include <fmt/format.h>

#include "common/checkpoint/checksummed_file.h"
#include "common/checkpoint/safetensors.h"

namespace muster {

absl::Status WriteModelFile(checkpoint::FileSystem& files, const std::string& path,
                            const checkpoint::Snapshot& snapshot, bool with_optimizer) {
  checkpoint::TensorSet all = snapshot.model;
  if (with_optimizer)
    all.tensors.insert(all.tensors.end(), snapshot.optimizer.tensors.begin(),
                       snapshot.optimizer.tensors.end());
  const std::string part = path + ".part";
  const auto write = [&]() -> absl::Status {
    MUSTER_ASSIGN_OR_RETURN(auto file, files.Create(part));
    checkpoint::ChecksummedFile out(std::move(file));
    MUSTER_RETURN_IF_ERROR(checkpoint::WriteSafetensors(all, out));
    MUSTER_RETURN_IF_ERROR(out.Finish());
    MUSTER_RETURN_IF_ERROR(files.Rename(part, path));
    return files.SyncDirectory(checkpoint::ParentPath(path));
  };
  const absl::Status written = write();
  if (written.ok()) return written;
  (void)files.Remove(part);
  return absl::UnavailableError(fmt::format("cannot write {}: {}", path, Message(written)));
}

absl::Status WriteModelFile(checkpoint::FileSystem& files, const std::string& path,
                            SnapshotTaker& snapshots, const Replica& replica,
                            const LoopState& state, bool with_optimizer) {
  MUSTER_ASSIGN_OR_RETURN(const checkpoint::Snapshot snapshot, snapshots.Take(replica, state));
  return WriteModelFile(files, path, snapshot, with_optimizer);
}

}  // namespace muster
