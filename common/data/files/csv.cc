#include "common/data/files/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace muster::data {
namespace {

class RowReader {
 public:
  RowReader(std::string_view text, char delimiter, const std::string& path)
      : text_(text), delimiter_(delimiter), path_(path) {
    if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
  }

  // Reads the cells of the next row that is not empty. Returns false at the end. The cells are
  // valid until the next call.
  absl::StatusOr<bool> Next(std::vector<std::string>* cells) {
    while (!text_.empty() && (text_[0] == '\n' || text_.starts_with("\r\n"))) EndLine();
    cells->clear();
    line_ = next_line_;
    if (text_.empty()) return false;
    for (;;) {
      std::string& cell = cells->emplace_back();
      if (text_.starts_with('"')) {
        MUSTER_RETURN_IF_ERROR(ReadQuoted(&cell));
      } else {
        const size_t end =
            std::min(text_.find_first_of(std::string{delimiter_, '\n'}), text_.size());
        cell = text_.substr(0, end);
        text_.remove_prefix(end);
        if (cell.ends_with('\r') && (text_.empty() || text_[0] == '\n')) cell.pop_back();
      }
      if (text_.starts_with(delimiter_)) {
        text_.remove_prefix(1);
        continue;
      }
      if (!text_.empty()) EndLine();
      return true;
    }
  }
  // Returns the line of the row that Next returned, from 1.
  int64_t line() const { return line_; }

 private:
  void EndLine() {
    text_.remove_prefix(text_.starts_with("\r\n") ? 2 : 1);
    ++next_line_;
  }

  absl::Status ReadQuoted(std::string* cell) {
    text_.remove_prefix(1);
    for (;;) {
      const size_t quote = text_.find('"');
      if (quote == std::string_view::npos) {
        return DataError(
            fmt::format("'{}', line {}: a quote is opened and never closed.", path_, line_));
      }
      const std::string_view piece = text_.substr(0, quote);
      next_line_ += std::count(piece.begin(), piece.end(), '\n');
      cell->append(piece);
      text_.remove_prefix(quote + 1);
      if (!text_.starts_with('"')) break;
      cell->push_back('"');
      text_.remove_prefix(1);
    }
    if (text_.empty() || text_[0] == delimiter_ || text_[0] == '\n' || text_.starts_with("\r\n"))
      return absl::OkStatus();
    return DataError(fmt::format("'{}', line {}: text follows a closing quote.", path_, line_));
  }

  std::string_view text_;
  const char delimiter_;
  const std::string& path_;
  int64_t line_ = 1, next_line_ = 1;
};

std::string_view Trimmed(std::string_view cell) {
  const size_t begin = cell.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return cell.substr(begin, cell.find_last_not_of(" \t") + 1 - begin);
}

template <typename T>
bool Parse(std::string_view text, T* value) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && stop == end;
}

// Returns a cell for messages, on one line and truncated.
std::string Shown(std::string_view text) {
  std::string shown(text.substr(0, 40));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return text.size() > shown.size() ? shown + "..." : shown;
}

// Converts a cell and adds it to *values. Returns the error of the cell, or "".
std::string Add(const std::string& cell, const CsvColumn& column, CsvTable::Values* values) {
  if (column.hash) {
    values->integers.push_back(HashKey(cell, *column.hash));
    return "";
  }
  const std::string_view text = Trimmed(cell);
  double number = 0;
  int64_t integer = 0;
  if (text.empty()) return "is empty";
  if (!Parse(text, &number) || !std::isfinite(number))
    return fmt::format("is '{}', which is no finite number", Shown(text));
  const bool whole = Parse(text, &integer);
  if (!whole && column.whole) return fmt::format("is '{}', which is no integer", Shown(text));
  values->whole &= whole;
  values->numbers.push_back(number);
  if (values->whole) values->integers.push_back(integer);
  return "";
}

}  // namespace

absl::StatusOr<std::vector<std::string>> CsvNames(std::string_view text, bool header,
                                                  char delimiter, const std::string& path) {
  RowReader reader(text, delimiter, path);
  std::vector<std::string> names;
  MUSTER_ASSIGN_OR_RETURN(const bool any, reader.Next(&names));
  if (!any) return DataError(fmt::format("'{}' has no rows.", path));
  for (size_t i = 0; i < names.size(); ++i)
    names[i] = header ? std::string(Trimmed(names[i])) : fmt::format("{}", i);
  return names;
}

absl::StatusOr<CsvTable> ReadCsvTable(std::string_view text, bool header, char delimiter,
                                      const std::string& path,
                                      const std::vector<CsvColumn>& columns) {
  CsvTable table;
  MUSTER_ASSIGN_OR_RETURN(table.names, CsvNames(text, header, delimiter, path));
  table.columns.resize(columns.size());
  RowReader reader(text, delimiter, path);
  std::vector<std::string> cells;
  if (header) MUSTER_RETURN_IF_ERROR(reader.Next(&cells).status());
  for (;; ++table.rows) {
    MUSTER_ASSIGN_OR_RETURN(const bool more, reader.Next(&cells));
    if (!more) break;
    if (cells.size() != table.names.size()) {
      return DataError(fmt::format("'{}', line {}: has {} columns, and the first line has {}.",
                                   path, reader.line(), cells.size(), table.names.size()));
    }
    for (size_t i = 0; i < columns.size(); ++i) {
      const std::string wrong = Add(cells[columns[i].place], columns[i], &table.columns[i]);
      if (wrong.empty()) continue;
      return DataError(fmt::format("'{}', line {}, column {} ({}): {}.", path, reader.line(),
                                   columns[i].place + 1, Shown(table.names[columns[i].place]),
                                   wrong));
    }
  }
  if (table.rows == 0) return DataError(fmt::format("'{}' has no rows.", path));
  return table;
}

}  // namespace muster::data
