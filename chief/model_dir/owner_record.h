// OwnerRecord is the content of owner.json, the file in a model_dir that names the owning chief.
// The functions in this header read the file and compute the record of the next owner. Owner
// (chief/model_dir/owner.h) uses them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster::chief {

// Returns 64 random bits as text.
std::string RandomHex();

struct OwnerRecord {
  // `place` identifies a boot of the host and a PID namespace. `process_start` is the start time of
  // the process. `place`, `process_start` and `pid` together identify the owner's process. `token`
  // is a random id of the owner. `identity` describes the owner's task and program. A later chief
  // with the same identity is the owner's replacement.
  std::string run_id, host, place, process_start, token, identity;
  uint32_t term = 0;  // A number above the terms of all earlier owners.
  int64_t pid = 0;
  uint64_t beat = 0;  // Rises with each write, as a sign of life.
  bool left = false;  // True if the owner has released the directory.
  // False for a new run until just before training first begins. True if members may hold state of
  // this run.
  bool begun = true;
  // The id of the run that this run replaces (restore: never), "" if none. Set only while `begun`
  // is false.
  std::string replaces;
};

// The run for which a chief is started.
enum class RunChoice {
  kContinue,  // Continue the directory's run.
  kNew,       // Begin a new run (restore: never).
  // For a restarted chief of a job with "restore": "never". Continue the new run that the previous
  // chief began, and do not begin another new run.
  kResume
};

// Returns the record of the owner that follows `before`. Sets only run_id, term, begun and
// replaces. `before` is nullopt if the directory has no record.
OwnerRecord NextRecord(const std::optional<OwnerRecord>& before, RunChoice choice);
// Returns the id of the last run that had begun, according to `before`. Returns "" if there is
// none.
std::string RunBefore(const std::optional<OwnerRecord>& before);

// Returns the content of owner.json, padded to at least `at_least` bytes. With the current size of
// the file as `at_least`, a write over the file leaves no old bytes.
std::string Text(const OwnerRecord& record, size_t at_least);

// The result of reading owner.json.
struct OwnerFile {
  std::optional<OwnerRecord> record;
  // The term in the file if this term is implausibly high, else 0. Such a file has no record.
  uint64_t implausible_term = 0;
  // errno of the read. If `error` is 0 and there is no record, the file is damaged.
  int error = 0;
};
// Reads the file several times if its content is invalid, because its owner may be writing to it.
OwnerFile ReadOwner(const std::string& path);
// Reads the file once.
OwnerFile ReadOwnerOnce(const std::string& path);

}  // namespace muster::chief
