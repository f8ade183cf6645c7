// Zip archives: npz files, and what torch.export.save writes.
#include "common/base/files/zip.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const fuzz::MemoryFile file(fuzz::Text(data, size));
  for (const bool exported : {false, true}) {
    const auto zip = ZipReader::Open(
        file.path(), {.without_folder = exported, .only_stored = exported, .kind = "it"});
    if (!zip.ok()) continue;
    for (const std::string& name : (*zip)->names()) {
      fuzz::Require(
          (*zip)->Size(name) >= 0 && (*zip)->Size(name) <= 1032 * static_cast<int64_t>(size + 1),
          "a member has a size that the file can hold");
      (void)(*zip)->Offset(name);
      (void)(*zip)->ReadText(name);
      if ((*zip)->Size(name) > (1 << 20)) continue;
      std::string bytes((*zip)->Size(name), '\0');
      (void)(*zip)->Read(name, bytes.data());
    }
  }
  return 0;
}
