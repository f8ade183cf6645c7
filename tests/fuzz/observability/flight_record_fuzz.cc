// A flight record, and the story that is made of several.
#include "common/flight/flight_record.h"
#include "common/flight/flight_story.h"
#include "muster/json.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const std::string_view text = fuzz::Text(data, size);
  (void)GenerationOfFolder(text);
  const absl::StatusOr<FlightRecord> record = ParseFlightRecord(text, "the input");
  if (!record.ok()) return 0;
  const FlightStory story = BuildFlightStory({.records = {*record, *record}});
  (void)FlightLines(story);
  (void)Dump(FlightJson(story));
  return 0;
}
