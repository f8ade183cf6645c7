// Feeds bytes as the record that servers return to a restarted chief, and as the work table in it.
#include "chief/leases/chief_record.h"
#include "chief/leases/work_table.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  using namespace muster::chief;
  using namespace muster::chief;
  const absl::StatusOr<ChiefRecord> record = ChiefRecordOf(std::string(fuzz::Text(data, size)));
  if (!record.ok()) return 0;
  (void)IsNewer(*record, *record);
  (void)ToText(*record);
  WorkTable::Options options;
  options.leases = {.examples = 100, .batch = 10, .epochs = 2};
  options.workers = 2;
  options.shards = 2;
  const auto table = WorkTable::FromRecord(options, record->work);
  if (!table.ok()) return 0;
  (*table)->FinishRecovery();
  (void)(*table)->WorkersNotReported();
  (*table)->AbandonRecovery();
  (void)(*table)->ToRecord();
  return 0;
}
