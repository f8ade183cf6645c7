// A file of tensors, header and data, as a checkpoint's and as a foreign one.
#include "common/checkpoint/export_file.h"
#include "common/checkpoint/files/file_system.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/weights_file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/checkpoint/memory_file_system.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  using namespace checkpoint;
  static MemoryFileSystem& files = *new MemoryFileSystem;
  constexpr char kPath[] = "/file.safetensors";
  {
    auto file = files.Create(kPath);
    fuzz::Require(file.ok() && (*file)->Append(fuzz::Text(data, size)).ok(), "a file in memory");
    fuzz::Require((*file)->Sync().ok() && files.SyncDirectory("/").ok(), "a file in memory");
  }
  const auto file = files.Open(kPath);
  fuzz::Require(file.ok(), "a file in memory");
  uint32_t crc = 0;
  for (const bool foreign : {false, true}) {
    ForeignTensors others;
    Metadata metadata;
    const auto set = ReadSafetensors(**file, &crc, foreign ? &others : nullptr, &metadata);
    if (!set.ok()) continue;
    uint64_t sum = 0;
    for (const auto& tensor : set->tensors)
      for (size_t i = 0; i < tensor.bytes(); ++i)
        sum += static_cast<const unsigned char*>(static_cast<const void*>(tensor.data))[i];
    fuzz::Require(sum <= 255 * size, "tensors lie in the file, none on another");
  }
  (void)ReadExport(files, kPath);
  return 0;
}
