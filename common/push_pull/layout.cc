#include "common/push_pull/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "common/base/hash.h"

namespace muster::push_pull {
namespace {

constexpr int64_t kElementBytes = sizeof(float);
const std::vector<std::string> kPartitionerNames = {"min_size", "max_size", "fixed"};

int64_t Rows(const VariableSpec& variable) {
  return variable.shape.empty() ? 1 : variable.shape.front();
}

int64_t NumParts(const VariableSpec& variable, const LayoutOptions& options) {
  const Partitioner& p = options.partitioner;
  const int64_t bytes = variable.elements() * kElementBytes;
  int64_t parts = 1;
  switch (p.kind) {
    case Partitioner::Kind::kMinSize:
      parts = std::min(bytes / p.bytes, p.parts.value_or(options.servers));
      break;
    case Partitioner::Kind::kMaxSize:
      parts = bytes / p.bytes + (bytes % p.bytes != 0 ? 1 : 0);
      if (p.parts) parts = std::min(parts, *p.parts);
      break;
    case Partitioner::Kind::kFixed:
      parts = *p.parts;
      break;
  }
  return std::clamp<int64_t>(parts, 1, std::max<int64_t>(1, Rows(variable)));
}

// Cuts variables into parts. The first (rows mod parts) parts have one row more than the others.
void Cut(const std::vector<VariableSpec>& variables, const LayoutOptions& options, Layout* layout) {
  for (size_t v = 0; v < variables.size(); ++v) {
    if (variables[v].table) continue;
    const int64_t rows = Rows(variables[v]), parts = NumParts(variables[v], options);
    const int64_t row = rows == 0 ? 0 : variables[v].elements() / rows;
    int64_t begin = 0;
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t end = begin + rows / parts + (i < rows % parts ? 1 : 0);
      layout->parts.push_back({static_cast<int>(v), begin * row, end * row});
      begin = end;
    }
  }
}

// Assigns the parts in order of size, the largest first, each to the server with the fewest bytes.
void Spread(const LayoutOptions& options, Layout* layout) {
  std::vector<size_t> order(layout->parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return layout->parts[a].elements() > layout->parts[b].elements();
  });
  std::vector<int64_t> held(options.servers);
  for (const size_t i : order) {
    const auto least = std::min_element(held.begin(), held.end());
    layout->parts[i].server = static_cast<int>(least - held.begin());
    *least += layout->parts[i].elements();
  }
  layout->elements = std::move(held);
}

// Places parts in memory. Parts that may share a chunk are adjacent, so that small parts share one.
void Place(const std::vector<VariableSpec>& variables, const LayoutOptions& options,
           Layout* layout) {
  const int64_t most = std::max<int64_t>(1, options.chunk_bytes / kElementBytes);
  std::vector<size_t> order(layout->parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto kind = [&](size_t i) {
    const VariableSpec& variable = variables[layout->parts[i].variable];
    return std::pair(variable.optimizer, variable.together);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return kind(a) < kind(b); });
  std::vector<std::pair<int, int>> last(options.servers);
  std::vector<int64_t> next(options.servers);
  layout->chunks.resize(options.servers);
  for (const size_t i : order) {
    VariablePart& part = layout->parts[i];
    part.offset = next[part.server];
    next[part.server] += part.elements();
    std::vector<Chunk>& chunks = layout->chunks[part.server];
    for (int64_t at = part.offset; at < next[part.server];) {
      if (chunks.empty() || last[part.server] != kind(i) || chunks.back().elements() >= most)
        chunks.push_back({part.server, at, at, kind(i).first});
      last[part.server] = kind(i);
      Chunk& chunk = chunks.back();
      chunk.end = std::min(next[part.server], chunk.begin + most);
      at = chunk.end;
    }
  }
}

// Places tables after all ranges, so that the numbers of ranges do not depend on the tables.
void PlaceTables(const std::vector<VariableSpec>& variables, Layout* layout) {
  for (size_t v = 0; v < variables.size(); ++v) {
    if (!variables[v].table) continue;
    for (size_t server = 0; server < layout->chunks.size(); ++server) {
      const int64_t end = layout->elements[server];
      for (int i = 0; i < kRowChunks; ++i)
        layout->chunks[server].push_back(
            {static_cast<int>(server), end, end, variables[v].optimizer, static_cast<int>(v)});
    }
  }
}

// Returns the difference between two tables that are not equal.
std::string FirstDifference(const std::string& name, const TableSpec& a, const TableSpec& b) {
  const std::tuple<const char*, int64_t, int64_t> limits[] = {
      {"dtype", a.type, b.type},
      {"max_rows", a.max_rows, b.max_rows},
      {"max_bytes", a.max_bytes, b.max_bytes},
      {"eviction", a.eviction, b.eviction},
      {"admit_after", a.admit_after, b.admit_after}};
  for (const auto& [key, mine, theirs] : limits)
    if (mine != theirs)
      return fmt::format("{} of table {}: {} here, {} there", key, name, mine, theirs);
  return fmt::format("the rows of table {}", name);
}

}  // namespace

// EmbeddingTable and RowStorage also use hashes of keys. This hash is different, so that the keys
// of one chunk are still distributed evenly there.
RowPlace PlaceOfRow(uint64_t key, int servers) {
  uint64_t x = key * 0x9e3779b97f4a7c15;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  x ^= x >> 32;
  const auto count = static_cast<uint64_t>(servers) * kRowChunks;
  const uint64_t place = x % count;
  return {static_cast<int>(place / kRowChunks), static_cast<int>(place % kRowChunks)};
}

int64_t VariableSpec::elements() const {
  int64_t elements = 1;
  for (const int64_t size : shape) {
    if (size == 0) return 0;
    if (__builtin_mul_overflow(elements, size, &elements) || elements > kMaxVariableElements)
      elements = kMaxVariableElements;
  }
  return elements;
}

absl::Status CheckSizes(const std::vector<VariableSpec>& variables, const LayoutOptions& options) {
  constexpr int64_t kMaxPlaces = 1 << 22;  // Parts, or chunks.
  int64_t elements = 0, parts = 0, tables = 0;
  for (const VariableSpec& variable : variables) {
    for (const int64_t size : variable.shape)
      if (size < 0)
        return ConfigurationError(
            fmt::format("{} has a negative size in its shape", Json(variable.name).dump()));
    if (variable.table) {
      ++tables;
      continue;
    }
    elements += variable.elements();
    parts += NumParts(variable, options);
    if (elements >= kMaxVariableElements || parts > kMaxPlaces) break;
  }
  if (elements >= kMaxVariableElements)
    return ConfigurationError(
        fmt::format("the variables have more than {} elements together", kMaxVariableElements));
  const int64_t most = std::max<int64_t>(1, options.chunk_bytes / kElementBytes);
  // Each part may begin a chunk, and so may each run of `most` elements in it.
  const int64_t places = elements / most + 2 * parts + tables * kRowChunks * options.servers;
  if (parts <= kMaxPlaces && places <= kMaxPlaces) return absl::OkStatus();
  return ConfigurationError(
      fmt::format("chunk_bytes {} and the partitioner would make more than {} chunks",
                  options.chunk_bytes, kMaxPlaces));
}

absl::StatusOr<Partitioner> ParsePartitioner(const Json& json) {
  const Json object = json.is_string() ? Json::object({{"name", json}}) : json;
  JsonObject reader(object, "parameter_server.partitioner");
  Partitioner partitioner;
  std::string name = kPartitionerNames.front();
  reader.Read("name", &name);
  const auto found = std::find(kPartitionerNames.begin(), kPartitionerNames.end(), name);
  if (found == kPartitionerNames.end()) {
    reader.Fail("name", fmt::format("must be one of {}, is \"{}\"",
                                    fmt::join(kPartitionerNames, ", "), name));
  } else {
    partitioner.kind = static_cast<Partitioner::Kind>(found - kPartitionerNames.begin());
  }
  if (reader.Has("parts")) reader.Read("parts", &partitioner.parts.emplace(1));
  if (partitioner.parts && *partitioner.parts < 1)
    reader.Fail("parts", fmt::format("must be at least 1, is {}", *partitioner.parts));
  if (partitioner.kind == Partitioner::Kind::kFixed) {
    if (!partitioner.parts) reader.Fail("parts", "is missing: how many parts each variable has");
  } else {
    reader.Read("bytes", &partitioner.bytes);
    if (partitioner.bytes < kElementBytes)
      reader.Fail("bytes",
                  fmt::format("must be at least {}, is {}", kElementBytes, partitioner.bytes));
  }
  MUSTER_RETURN_IF_ERROR(reader.Finish());
  return partitioner;
}

Layout MakeLayout(const std::vector<VariableSpec>& variables, const LayoutOptions& options) {
  Layout layout;
  Cut(variables, options, &layout);
  Spread(options, &layout);
  Place(variables, options, &layout);
  PlaceTables(variables, &layout);
  return layout;
}

std::string DigestOf(const std::vector<VariableSpec>& variables, const LayoutOptions& options) {
  std::string text = fmt::format("servers {} chunk {} partitioner {} {} {}\n", options.servers,
                                 options.chunk_bytes, static_cast<int>(options.partitioner.kind),
                                 options.partitioner.bytes, options.partitioner.parts.value_or(0));
  for (const VariableSpec& v : variables) {
    text += fmt::format("{} {} {} {} {}\n", Json(v.name).dump(), fmt::join(v.shape, "x"),
                        v.optimizer, fmt::join(v.order, ","), v.together);
    if (v.table)
      text +=
          fmt::format("table {} {} {} {} {} {} {} {} {} {}\n", v.table->width, v.table->initializer,
                      v.table->scale, v.table->seed, kRowChunks, v.table->type, v.table->max_rows,
                      v.table->max_bytes, v.table->eviction, v.table->admit_after);
  }
  return fmt::format("{:016x}", Fnv1a(text));
}

std::string FirstDifference(const std::vector<VariableSpec>& mine,
                            const std::vector<VariableSpec>& theirs) {
  for (size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) {
    const VariableSpec &a = mine[i], &b = theirs[i];
    if (a.name != b.name)
      return fmt::format("variable {}: {} here, {} there", i + 1, a.name, b.name);
    if (a.shape != b.shape)
      return fmt::format("the shape of {}: [{}] here, [{}] there", a.name, fmt::join(a.shape, ", "),
                         fmt::join(b.shape, ", "));
    if (a.optimizer != b.optimizer) return fmt::format("the optimizer of {}", a.name);
    if (a.table != b.table) {
      if (a.table && b.table) return FirstDifference(a.name, *a.table, *b.table);
      return fmt::format("the rows of table {}", a.name);
    }
    if (a.order != b.order) return fmt::format("the order of {} in memory", a.name);
    if (a.together != b.together) return fmt::format("the chunks of {}", a.name);
  }
  if (mine.size() != theirs.size())
    return fmt::format("the number of variables: {} here, {} there", mine.size(), theirs.size());
  return "";
}

}  // namespace muster::push_pull
