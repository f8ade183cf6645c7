// A job file, whole.
#include "common/job/job.h"
#include "muster/json.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const absl::StatusOr<Json> json = ParseJson(fuzz::Text(data, size), "the job");
  if (json.ok()) (void)JobFromJson(*json);
  return 0;
}
