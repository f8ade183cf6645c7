// TFRecord files, plain and compressed, and the tf.Example in their records.
#include "common/data/files/byte_source.h"
#include "common/data/records/record_file.h"
#include "proto/tf_example.pb.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const std::string_view bytes = fuzz::Text(data, size);
  const fuzz::MemoryFile file(bytes);
  const auto records = data::RecordFile::Open(file.path());
  if (records.ok()) {
    for (int64_t i = 0; i < std::min<int64_t>((*records)->size(), 64); ++i) {
      const auto record = (*records)->Record(i);
      tf::Example example;
      if (record.ok())
        (void)example.ParseFromArray(record->data(), static_cast<int>(record->size()));
    }
  }
  return 0;
}
