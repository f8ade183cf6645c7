// Reads comma-separated values (RFC 4180: quotes, doubled quotes, line ends of both kinds). Needs
// no LibTorch. Internal to this folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muster/keys.h"
#include "muster/status.h"

namespace muster::data {

struct CsvTable {
  std::vector<std::string> names;  // Of all columns. Without a header: "0", "1", ...
  int64_t rows = 0;
  // The values of the requested columns, in the order requested. `integers` has the same values
  // where all are integers. For hashed text only `integers` is set.
  struct Values {
    std::vector<double> numbers;
    std::vector<int64_t> integers;
    bool whole = true;
  };
  std::vector<Values> columns;
};

// Returns the names of a table's columns.
absl::StatusOr<std::vector<std::string>> CsvNames(std::string_view text, bool header,
                                                  char delimiter, const std::string& path);

struct CsvColumn {
  size_t place = 0;    // Its index in the table. The table must have it.
  bool whole = false;  // Requires its values to be integers.
  // Set where the cells are text (any bytes), which is hashed to integers. Cells are not trimmed.
  std::optional<KeyHash> hash = {};
};

// Reads the values of some columns. A DataError names line and column of a cell that is not a
// number, or not an integer where it must be. It names the line of a row with a wrong number of
// cells.
absl::StatusOr<CsvTable> ReadCsvTable(std::string_view text, bool header, char delimiter,
                                      const std::string& path,
                                      const std::vector<CsvColumn>& columns);

}  // namespace muster::data
