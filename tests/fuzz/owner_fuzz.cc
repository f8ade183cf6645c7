// owner.json, which says whose the model_dir is.
#include "chief/model_dir/owner_record.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  using namespace muster::chief;
  if (size > 1 << 14) return 0;
  const fuzz::MemoryFile file(fuzz::Text(data, size));
  const OwnerLook look = LookOnce(file.path());
  if (!look.record) return 0;
  for (const RunChoice choice : {RunChoice::kGoOn, RunChoice::kAnew, RunChoice::kResume}) {
    const OwnerRecord next = NextRecord(look.record, choice);
    fuzz::Require(next.epoch > look.record->epoch, "epochs of a chief rise");
    (void)Text(next, size);
  }
  return 0;
}
