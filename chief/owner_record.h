// What owner.json holds, and which of it a chief that takes the directory goes on with. Only Owner
// (chief/owner.h) reads and writes the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster {

// 64 random bits as text.
std::string RandomHex();
// Where a pid means something: the boot of a machine and its pid namespace.
std::string PlaceOfThisProcess();
// When a process began, in ticks since boot; "" if there is none, or only a zombie. A pid alone may
// be used again.
std::string StartOf(int64_t pid);

struct OwnerRecord {
  std::string run_id, host, place, process_start, token, identity;
  uint32_t epoch = 0;
  int64_t pid = 0;
  uint64_t beat = 0;
  bool left = false;  // its owner went, in good order
  // Members may hold state of this run. False from the moment in which the directory is taken until
  // the first generation is formed.
  bool begun = true;
  // While it has not begun: the run of which it takes the place (restore: never); "": of none.
  std::string replaces;
};

// What a chief is started for.
enum class RunChoice {
  kGoOn,   // with the run that the directory holds
  kAnew,   // with a new one (restore: never)
  kResume  // in the place of a chief that was lost, which was started for a new one
};

// The run and epoch of the next owner, after that of `before` (nullopt: the directory holds none);
// the rest is its own.
OwnerRecord NextRecord(const std::optional<OwnerRecord>& before, RunChoice choice);
// The run that the directory held before: the last one that had begun; "": none had.
std::string RunBefore(const std::optional<OwnerRecord>& before);

// The file's content. `at_least`: as many bytes as the file had before, all of which it replaces.
std::string Text(const OwnerRecord& record, size_t at_least);

// What `path` holds now.
struct OwnerLook {
  std::optional<OwnerRecord> record;
  uint64_t implausible_epoch = 0;  // there is no record, for no run has had so many chiefs
  int error = 0;                   // of the system; 0: read, but damaged where there is no record
};
OwnerLook LookAtOwner(const std::string& path);
// The same without a second look where its owner is just writing to it.
OwnerLook LookOnce(const std::string& path);

}  // namespace muster
