#include "common/train/state/model_file.h"

#include <fmt/format.h>

#include "common/checkpoint/export_file.h"

namespace muster {

absl::Status WriteModelFile(checkpoint::FileSystem& files, const std::string& path,
                            checkpoint::Snapshot snapshot, const Job& job, bool with_optimizer) {
  snapshot.state.job = JobToJson(job);
  const absl::Status written = checkpoint::WriteExport(files, snapshot, with_optimizer, path);
  if (written.ok()) return written;
  return absl::UnavailableError(fmt::format("cannot write {}: {}", path, Message(written)));
}

}  // namespace muster
