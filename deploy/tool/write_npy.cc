#include "deploy/tool/write_npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "common/checkpoint/files/file_system.h"

namespace muster {
namespace {

constexpr std::pair<at::ScalarType, const char*> kTypes[] = {
    {at::kBool, "|b1"},  {at::kByte, "|u1"},  {at::kChar, "|i1"},
    {at::kShort, "<i2"}, {at::kInt, "<i4"},   {at::kLong, "<i8"},
    {at::kHalf, "<f2"},  {at::kFloat, "<f4"}, {at::kDouble, "<f8"}};

// Magic, version 1.0, the header's length, and the header, padded so that the data begins at a
// multiple of 64 bytes.
std::string HeadOf(const char* type, at::IntArrayRef sizes) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                   type, fmt::join(sizes, ", "), sizes.size() == 1 ? "," : "");
  constexpr size_t kBefore = 10, kAlignment = 64;
  const size_t whole = (kBefore + header.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  header.resize(whole - kBefore - 1, ' ');
  header += '\n';
  std::string head("\x93NUMPY\x01\x00", 8);
  head += static_cast<char>(header.size() & 0xff);
  head += static_cast<char>(header.size() >> 8);
  return head + header;
}

}  // namespace

absl::Status WriteNpy(const std::string& path, const at::Tensor& given) {
  const at::Tensor tensor =
      (given.scalar_type() == at::kBFloat16 ? given.to(at::kFloat) : given).contiguous();
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& known) {
    return known.first == tensor.scalar_type();
  });
  if (type == std::end(kTypes)) {
    return ProgramError(fmt::format("outputs of type {} cannot be written as .npy",
                                    c10::toString(tensor.scalar_type())));
  }
  checkpoint::FileSystem& files = checkpoint::PosixFileSystem();
  const std::string unfinished = path + ".tmp";
  const auto write = [&]() -> absl::Status {
    MUSTER_ASSIGN_OR_RETURN(const auto file, files.Create(unfinished));
    MUSTER_RETURN_IF_ERROR(file->Append(HeadOf(type->second, tensor.sizes())));
    if (tensor.numel() > 0) {
      MUSTER_RETURN_IF_ERROR(file->Append(
          std::string_view(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes())));
    }
    MUSTER_RETURN_IF_ERROR(file->Sync());
    MUSTER_RETURN_IF_ERROR(file->Close());
    return files.Rename(unfinished, path);
  };
  const absl::Status written = write();
  if (written.ok()) return written;
  (void)files.Remove(unfinished);
  return ConfigurationError(fmt::format("cannot write {}: {}", path, Message(written)));
}

}  // namespace muster
