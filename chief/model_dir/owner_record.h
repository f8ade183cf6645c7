// The content of owner.json, and the part of it that a chief which takes the directory adopts. Only
// Owner (chief/model_dir/owner.h) reads and writes the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster {

// Returns 64 random bits as text.
std::string RandomHex();
// Returns the scope in which a pid is unique: the machine's boot and its pid namespace.
std::string PlaceOfThisProcess();
// Returns when a process began, in ticks since boot, "" if it does not exist or is a zombie. Pids
// are reused, so a pid alone does not identify a process.
std::string StartOf(int64_t pid);

struct OwnerRecord {
  std::string run_id, host, place, process_start, token, identity;
  uint32_t epoch = 0;
  int64_t pid = 0;
  uint64_t beat = 0;
  bool left = false;  // Its owner exited in good order.
  // True if members may hold state of this run. False from the time the directory is taken until
  // the first generation is formed.
  bool begun = true;
  // While the run has not begun: the run that it replaces (restore: never), "" if none.
  std::string replaces;
};

// The run for which a chief is started.
enum class RunChoice {
  kGoOn,   // The run that the directory holds.
  kAnew,   // A new run (restore: never).
  kResume  // Replaces a lost chief that was started for a new run.
};

// Returns the record of the owner after `before` with its run and term. The caller sets the other
// fields. nullopt: the directory holds no record.
OwnerRecord NextRecord(const std::optional<OwnerRecord>& before, RunChoice choice);
// Returns the directory's last run that had begun, "" if none.
std::string RunBefore(const std::optional<OwnerRecord>& before);

// Returns the file's content with at least `at_least` bytes, the size of the file before, so that
// it overwrites all of it.
std::string Text(const OwnerRecord& record, size_t at_least);

// The content of `path` as read.
struct OwnerLook {
  std::optional<OwnerRecord> record;
  // Set if there is no record because no run can have had so many chiefs.
  uint64_t implausible_epoch = 0;
  int error = 0;  // errno; 0 without a record: the file was read but is damaged.
};
OwnerLook LookAtOwner(const std::string& path);
// As LookAtOwner, but does not read a second time if the owner is just writing the file.
OwnerLook LookOnce(const std::string& path);

}  // namespace muster
