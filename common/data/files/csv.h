// Reads comma-separated values (RFC 4180: quotes, doubled quotes, LF or CRLF line ends). Needs no
// LibTorch. Internal to this folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muster/keys.h"
#include "muster/status.h"

namespace muster::data {

struct CsvTable {
  std::vector<std::string> names;  // The names of all columns. Without a header, "0", "1", ...
  int64_t rows = 0;
  // The values of one requested column. If all values are integers, `whole` is true and `integers`
  // has the same values as `numbers`. For a column of hashed text, only `integers` is set.
  struct Values {
    std::vector<double> numbers;
    std::vector<int64_t> integers;
    bool whole = true;
  };
  std::vector<Values> columns;
};

// Returns the names of a table's columns. `header` is true if the first row has the names.
absl::StatusOr<std::vector<std::string>> CsvNames(std::string_view text, bool header,
                                                  char delimiter, const std::string& path);

struct CsvColumn {
  size_t place = 0;    // The index of the column. The table must have this column.
  bool whole = false;  // If true, all values must be integers.
  // Set for text columns: the hash function that converts cells to integers. A cell may have any
  // bytes. Cells are not trimmed.
  std::optional<KeyHash> hash = {};
};

// Reads the values of `columns`. Returns a DataError with line and column if a cell is not a
// number, or not an integer in a column of integers. Returns a DataError with the line if a row has
// a wrong number of cells.
absl::StatusOr<CsvTable> ReadCsvTable(std::string_view text, bool header, char delimiter,
                                      const std::string& path,
                                      const std::vector<CsvColumn>& columns);

}  // namespace muster::data
