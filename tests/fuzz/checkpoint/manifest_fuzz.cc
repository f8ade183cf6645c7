// A checkpoint's manifest.json.
#include "common/checkpoint/manifest.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const auto manifest = checkpoint::ParseManifest(fuzz::Text(data, size));
  if (!manifest.ok()) return 0;
  fuzz::Require(manifest->bytes() >= 0, "sizes of files add up");
  for (const auto& [name, file] : manifest->files) {
    fuzz::Require(name.find('/') == std::string::npos && name != ".." && !name.empty(),
                  "files of a checkpoint are in its folder");
    fuzz::Require(file.bytes >= 0, "a file has a size");
  }
  return 0;
}
