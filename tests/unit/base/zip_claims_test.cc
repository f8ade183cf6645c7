// Sizes that a zip archive claims and cannot hold: who reads it takes memory by them.
#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/base/files/zip.h"

namespace muster {
namespace {

template <typename T>
void Append(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

// An archive of one member of four bytes that claims `size`, in 64 bits.
std::string Archive(uint16_t method, uint64_t size) {
  std::string local, entry, end;
  for (const uint32_t number : {0x04034b50u, 20u, 0u, 0u, 0u, 0u}) Append(number, &local);
  Append<uint16_t>(0, &local);
  Append<uint32_t>(1, &local);  // the name's length, no extra
  local += "xdata";
  Append<uint32_t>(0x02014b50, &entry);
  Append<uint32_t>(20 | 45 << 16, &entry);
  Append<uint16_t>(0, &entry);
  Append<uint16_t>(method, &entry);
  for (const uint32_t number : {0u, 0u, 4u, 0xffffffffu}) Append(number, &entry);
  for (const uint16_t number : {1, 12, 0, 0, 0}) Append(number, &entry);
  Append<uint32_t>(0, &entry);
  Append<uint32_t>(0, &entry);  // the local header's place
  entry += "x";
  Append<uint16_t>(1, &entry);
  Append<uint16_t>(8, &entry);
  Append(size, &entry);
  Append<uint32_t>(0x06054b50, &end);
  for (const uint16_t number : {0, 0, 1, 1}) Append(number, &end);
  Append(static_cast<uint32_t>(entry.size()), &end);
  Append(static_cast<uint32_t>(local.size()), &end);
  Append<uint16_t>(0, &end);
  return local + entry + end;
}

absl::Status Open(uint16_t method, uint64_t size) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("muster-zip-" + std::to_string(getpid()) + ".npz"))
          .string();
  std::ofstream(path, std::ios::binary) << Archive(method, size);
  const absl::Status status = ZipReader::Open(path, {.kind = "numpy.savez writes"}).status();
  std::filesystem::remove(path);
  return status;
}

TEST(ZipClaims, WhatAFileCannotHoldIsRefusedBeforeMemoryIsTaken) {
  constexpr uint16_t kStored = 0, kDeflated = 8;
  EXPECT_TRUE(Open(kStored, 4).ok()) << Open(kStored, 4);
  EXPECT_TRUE(Open(kDeflated, 4000).ok()) << "four bytes may become so many";
  for (const uint16_t method : {kStored, kDeflated, uint16_t{12}}) {
    const absl::Status status = Open(method, uint64_t{1} << 40);
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kDataDamaged);
    EXPECT_THAT(status.message(), testing::HasSubstr("x claims 1099511627776 bytes"));
  }
}

}  // namespace
}  // namespace muster
