#include "common/exported/columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

namespace muster::exported {
namespace {

constexpr char kTarget[] = "target";

int Find(const std::vector<data::Column>& columns, const std::string& name) {
  const auto found = std::find_if(columns.begin(), columns.end(),
                                  [&](const data::Column& c) { return c.name == name; });
  return found == columns.end() ? -1 : static_cast<int>(found - columns.begin());
}

}  // namespace

absl::StatusOr<std::vector<int>> ArrangeColumns(const std::vector<data::Column>& columns,
                                                const Shapes& shapes) {
  std::vector<std::string> wanted, given;
  for (const InputShape& input : shapes.inputs()) wanted.push_back(input.name);
  wanted.emplace_back(kTarget);
  for (const data::Column& column : columns) given.push_back(column.name);
  std::vector<int> order;
  for (const std::string& name : wanted) {
    if (const int column = Find(columns, name); column >= 0) order.push_back(column);
  }
  if (order.size() < wanted.size() && wanted.size() == 2 && columns.size() == 2) {
    order = {0, 1};  // For example "x" and "y".
    if (given[0] == kTarget || given[1] == wanted[0]) order = {1, 0};
  }
  if (order.size() != wanted.size() || columns.size() != wanted.size()) {
    return ConfigurationError(fmt::format(
        "it needs the columns {}, and the data have {}: name them in \"columns\" as the "
        "arguments of forward(), and \"{}\"",
        fmt::join(wanted, ", "), fmt::join(given, ", "), kTarget));
  }
  for (size_t i = 0; i < shapes.inputs().size(); ++i) {
    const data::Column& column = columns[order[i]];
    std::vector<int64_t> sizes = column.shape;
    sizes.insert(sizes.begin(), 0);  // 0 matches any number of examples.
    MUSTER_RETURN_IF_ERROR(shapes.Check(i, sizes, column.type));
  }
  return order;
}

}  // namespace muster::exported
