// TensorBoard's event files, as a restarted writer and reports read them.
#include <sstream>

#include "common/base/files/record.h"
#include "common/summary/event_reader.h"
#include "proto/event.pb.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const std::string text(fuzz::Text(data, size));
  std::istringstream file(text);
  std::string record;
  summary::Event event;
  while (ReadRecord(&file, &record) && event.ParseFromString(record)) {
    fuzz::Require(record.size() <= size, "a record is in the file");
  }
  std::istringstream again(text);
  summary::WriterFile read{.name = "events.out.tfevents.1.host.1"};
  summary::RunContent content;
  summary::AddEvents(&again, &read, &content);
  fuzz::Require(read.unread_bytes >= 0 && read.unread_bytes <= static_cast<int64_t>(size),
                "the bytes that are not read are in the file");
  for (const auto& [tag, points] : content.scalars)
    fuzz::Require(!points.empty(), "a curve has a point");
  return 0;
}
