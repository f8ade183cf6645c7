// Comma-separated values (RFC 4180: quotes, doubled quotes, line ends of both kinds). Needs no
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
  std::vector<std::string> names;  // of all columns; without a header "0", "1", ...
  int64_t rows = 0;
  // Of the columns that were asked for, in their order: the values, and the same as integers where
  // all of them are. Of text that is hashed, the integers alone.
  struct Values {
    std::vector<double> numbers;
    std::vector<int64_t> integers;
    bool whole = true;
  };
  std::vector<Values> columns;
};

// The names of a table's columns.
absl::StatusOr<std::vector<std::string>> CsvNames(std::string_view text, bool header,
                                                  char delimiter, const std::string& path);

struct CsvColumn {
  size_t place = 0;    // in the table, which has it
  bool whole = false;  // its values must be integers
  // Its cells are text, any bytes, which are hashed to integers; no cell is trimmed.
  std::optional<KeyHash> hash = {};
};

// The values of some columns. A DataError names line and column of a cell that is no number, or no
// integer where it must be, and the line of a row that has another number of cells.
absl::StatusOr<CsvTable> ReadCsvTable(std::string_view text, bool header, char delimiter,
                                      const std::string& path,
                                      const std::vector<CsvColumn>& columns);

}  // namespace muster::data
