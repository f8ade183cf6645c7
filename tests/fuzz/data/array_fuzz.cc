// Arrays in npy and IDX files, plain and gzip: the header, and the numbers behind it.
#include "common/data/files/array_header.h"
#include "tests/fuzz/fuzz.h"

namespace muster {
namespace {

using Open = absl::StatusOr<data::ArrayHeader> (*)(data::ByteSource&, const std::string&);

void Read(std::unique_ptr<data::ByteSource> source, const std::string& path, Open open,
          int64_t most) {
  const auto header = open(*source, path);
  if (!header.ok()) return;
  fuzz::Require(header->header_bytes > 0 && header->header_bytes <= most,
                "a header is in the file");
  const auto bytes = data::ArrayBytes(header->shape, data::BytesOf(header->type));
  if (data::Mappable(*source, *header))
    fuzz::Require(bytes && header->header_bytes + *bytes <= most, "what is mapped is in the file");
  std::string numbers;
  const absl::Status read = data::ReadNumbers(
      std::move(source), path, *header, [&](int64_t size) -> absl::StatusOr<void*> {
        fuzz::Require(size >= 0 && size <= most, "memory is taken for what the file can hold");
        numbers.resize(static_cast<size_t>(size));
        return numbers.data();
      });
  if (read.ok())
    fuzz::Require(bytes && static_cast<size_t>(*bytes) == numbers.size(), "all numbers are read");
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const auto plain = static_cast<int64_t>(size), packed = 1032 * (plain + 1);
  const fuzz::MemoryFile file(fuzz::Text(data, size));
  if (auto source = data::OpenBytes(file.path(), /*gzip_allowed=*/false); source.ok())
    Read(*std::move(source), file.path(), data::ReadNpyHeader, plain);
  if (auto source = data::OpenBytes(file.path(), /*gzip_allowed=*/true); source.ok())
    Read(*std::move(source), file.path(), data::ReadIdxHeader, packed);
  Read(data::MemoryBytes(fuzz::Text(data, size)), "the input", data::ReadNpyHeader, plain);
  return 0;
}
