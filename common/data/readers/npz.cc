// Reads numpy's npz, a zip archive of npy files
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html). Stored arrays are
// mapped. Deflated arrays are decompressed into memory.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/files/files.h"
#include "common/base/files/zip.h"
#include "common/base/json/ordered_json.h"
#include "common/data/files/array_file.h"
#include "common/data/readers/readers.h"

namespace muster::data {
namespace {

constexpr char kExtension[] = ".npy";

absl::StatusOr<at::Tensor> ReadMember(const ZipReader& zip, const std::string& member) {
  const std::string name = fmt::format("{}: {}", zip.path(), member);
  MUSTER_ASSIGN_OR_RETURN(const int64_t offset, zip.Offset(member));
  if (offset >= 0) {
    MUSTER_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(zip.path()));
    if (file->bytes().size() < static_cast<size_t>(offset + zip.Size(member)))
      return DataError(fmt::format("'{}' became shorter while it was read.", zip.path()));
    return NpyInMemory(file->bytes().substr(offset, zip.Size(member)), file, name);
  }
  constexpr int64_t kMaxBytes = int64_t{1} << 40;
  if (zip.Size(member) > kMaxBytes)
    return DataError(fmt::format("'{}' is damaged: it claims {} bytes.", name, zip.Size(member)));
  const auto bytes = std::make_shared<std::string>(zip.Size(member), '\0');
  MUSTER_RETURN_IF_ERROR(zip.Read(member, bytes->data()));
  return NpyInMemory(*bytes, bytes, name);
}

}  // namespace

absl::StatusOr<OpenSplit> OpenNpz(const DataSplit& split, const std::string& folder) {
  const std::string path = PathFrom(folder, split.paths[0]);
  const auto zip = ZipReader::Open(path, {.kind = "numpy.savez writes"});
  if (!zip.ok()) return DataError(fmt::format("{}.path: {}", split.key, Message(zip.status())));
  std::vector<at::Tensor> arrays;
  for (const DataColumn& column : split.columns) {
    const std::string member = column.source + kExtension;
    if (!(*zip)->Has(member)) {
      std::vector<std::string> names;
      for (const std::string& name : (*zip)->names()) {
        if (name.ends_with(kExtension))
          names.push_back(name.substr(0, name.size() - (sizeof(kExtension) - 1)));
      }
      return ConfigurationError(fmt::format("{} {} (of the arrays in '{}')", column.key,
                                            UnknownName(column.source, names), path));
    }
    absl::StatusOr<at::Tensor> array = ReadMember(**zip, member);
    if (!array.ok()) return Annotate(array.status(), column.key + ": ");
    arrays.push_back(*std::move(array));
  }
  return FromArrays(split, std::move(arrays));
}

}  // namespace muster::data
