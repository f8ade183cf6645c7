// A checkpoint's state.json.
#include "common/checkpoint/checkpoint.h"
#include "muster/json.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const absl::StatusOr<Json> json = ParseJson(fuzz::Text(data, size), "it");
  if (!json.ok()) return 0;
  const auto state = checkpoint::SavedStateFromJson(*json);
  if (!state.ok()) return 0;
  const std::string text = Dump(checkpoint::ToJson(*state));
  const absl::StatusOr<Json> written = ParseJson(text, "it");
  fuzz::Require(written.ok(), "a state that was read can be written");
  const auto again = checkpoint::SavedStateFromJson(*written);
  fuzz::Require(again.ok(), "and read again");
  fuzz::Require(Dump(checkpoint::ToJson(*again)) == text, "and is the same");
  return 0;
}
