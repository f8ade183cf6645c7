// owner.json, which says whose the model_dir is.
#include "chief/model_dir/owner_record.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  using namespace muster::chief;
  using namespace muster::chief;
  if (size > 1 << 14) return 0;
  const fuzz::MemoryFile file(fuzz::Text(data, size));
  const OwnerFile look = ReadOwnerOnce(file.path());
  if (!look.record) return 0;
  for (const RunChoice choice : {RunChoice::kContinue, RunChoice::kNew, RunChoice::kResume}) {
    const OwnerRecord next = NextRecord(look.record, choice);
    fuzz::Require(next.term > look.record->term, "epochs of a chief rise");
    (void)Text(next, size);
  }
  return 0;
}
