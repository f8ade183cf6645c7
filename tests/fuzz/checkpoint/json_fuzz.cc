// JSON of any kind, and the reader of one object.
#include "common/checkpoint/state/fields.h"
#include "muster/json.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const absl::StatusOr<Json> json = ParseJson(fuzz::Text(data, size), "the input");
  if (!json.ok()) return 0;
  const std::string text = Dump(*json);
  const absl::StatusOr<Json> again = ParseJson(text, "what was written");
  fuzz::Require(again.ok(), "what Dump writes can be read");
  fuzz::Require(Dump(*again) == text, "what is read again is the same");
  bool flag = false;
  int number = 0;
  int64_t integer = 0;
  uint64_t natural = 0;
  double real = 0;
  std::string word;
  std::vector<std::string> words;
  std::vector<double> reals;
  std::vector<int64_t> integers;
  JsonObject object(*json, "input");
  object.Read("flag", &flag).Read("number", &number).Read("integer", &integer);
  object.Read("natural", &natural).Read("real", &real).Read("word", &word);
  object.Read("words", &words).Read("reals", &reals).Read("integers", &integers);
  (void)object.Finish();
  checkpoint::Fields fields(*json);
  std::map<std::string, std::string> map;
  fields.Read("flag", &flag).Read("integer", &integer).Read("real", &real).Read("map", &map);
  (void)fields.Finish();
  return 0;
}
