// Tar archives, plain and gzip.
#include "common/data/records/tar_file.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const fuzz::MemoryFile file(fuzz::Text(data, size));
  const auto tar = data::TarFile::Open(file.path());
  if (!tar.ok()) return 0;
  unsigned sum = 0;
  for (const auto& member : (*tar)->members()) {
    fuzz::Require(!member.name.empty(), "a member has a name");
    for (const char byte : member.bytes) sum += static_cast<unsigned char>(byte);
  }
  (void)sum;
  return 0;
}
