// gzip and zlib: a file that is read in order, and one that is unpacked whole.
#include "common/data/files/byte_source.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const std::string_view bytes = fuzz::Text(data, size);
  const fuzz::MemoryFile file(bytes);
  auto source = data::OpenBytes(file.path(), /*gzip_allowed=*/true);
  if (source.ok()) (void)data::CountRest(**source, 1 << 20);
  for (const auto kind : {data::Deflated::kZlib, data::Deflated::kGzip}) {
    const auto all = data::InflateAll(bytes, kind, "the input");
    if (all.ok()) fuzz::Require(all->size() <= 1100 * size + 1, "deflate packs 1032 to 1");
  }
  return 0;
}
