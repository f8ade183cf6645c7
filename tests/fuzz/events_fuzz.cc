// TensorBoard's event files, as a restarted writer reads them.
#include <sstream>

#include "common/base/files/record.h"
#include "proto/event.pb.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  std::istringstream file{std::string(fuzz::Text(data, size))};
  std::string record;
  summary::Event event;
  while (ReadRecord(&file, &record) && event.ParseFromString(record)) {
    fuzz::Require(record.size() <= size, "a record is in the file");
  }
  return 0;
}
