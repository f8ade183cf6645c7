// Tables of comma-separated values.
#include "common/data/files/csv.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  fuzz::Bytes bytes(data, size);
  const auto flags = bytes.Take<uint8_t>();
  const bool header = (flags & 1) != 0, whole = (flags & 2) != 0;
  const char delimiter = (flags & 4) != 0 ? ';' : ',';
  const auto names = data::CsvNames(bytes.Rest(), header, delimiter, "the input");
  if (!names.ok()) return 0;
  std::vector<data::CsvColumn> columns;
  for (size_t i = 0; i < std::min<size_t>(names->size(), 8); ++i)
    columns.push_back({.place = i, .whole = whole});
  const auto table = data::ReadCsvTable(bytes.Rest(), header, delimiter, "the input", columns);
  if (table.ok())
    fuzz::Require(table->rows >= 0 && table->columns.size() == columns.size(), "a table");
  return 0;
}
