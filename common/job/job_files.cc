#include "common/job/job_files.h"

#include <map>

#include "common/base/files/files.h"
#include "common/data/job/job_data.h"

namespace muster {

void DigestFiles(Job* job) {
  const auto data = data::ParseJobData(job->data);
  if (!data.ok()) return;                                    // Cannot happen in a checked job.
  std::map<std::string, absl::StatusOr<std::string>> found;  // Several splits may share a file.
  for (const auto& [key, file] : data::FilesOf(*data)) {
    const std::string path = PathFrom(job->folder, file);
    if (!found.contains(path)) found[path] = PathDigest(path);
    if (found[path].ok()) job->digests[key] = *found[path];
  }
}

}  // namespace muster
