// The content of owner.json, and the rules for the record of the next owner. Only Owner
// (chief/model_dir/owner.h) reads and writes the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster::chief {

// Returns 64 random bits as text.
std::string RandomHex();

struct OwnerRecord {
  std::string run_id, host, place, process_start, token, identity;
  uint32_t term = 0;
  int64_t pid = 0;
  uint64_t beat = 0;
  bool left = false;  // The owner exited in good order.
  // True if members may hold state of this run. False for a new run until its first generation is
  // formed.
  bool begun = true;
  // The run that this run replaces (restore: never), "" if none. Set only while `begun` is false.
  std::string replaces;
};

// The run that a chief is started for.
enum class RunChoice {
  kContinue,  // Continue the directory's run.
  kNew,       // Begin a new run (restore: never).
  kResume     // Continue the new run of a lost chief.
};

// Returns the record of the owner that follows `before`. Sets only the fields of the run and the
// term. `before` is nullopt if the directory has no record.
OwnerRecord NextRecord(const std::optional<OwnerRecord>& before, RunChoice choice);
// Returns the id of the directory's last run that had begun, "" if none.
std::string RunBefore(const std::optional<OwnerRecord>& before);

// Returns the file's content, padded to at least `at_least` bytes. If that is the file's current
// size, a write in place leaves no old bytes.
std::string Text(const OwnerRecord& record, size_t at_least);

// The result of reading owner.json.
struct OwnerFile {
  std::optional<OwnerRecord> record;
  // Set if the file was rejected because its term is implausibly high.
  uint64_t implausible_term = 0;
  // errno of the read. If it is 0 and there is no record, the file is damaged.
  int error = 0;
};
OwnerFile ReadOwner(const std::string& path);
// Does the same as ReadOwner with a single read, so it may see a write in progress.
OwnerFile ReadOwnerOnce(const std::string& path);

}  // namespace muster::chief
