// The placement of variables on parameter servers, and the chunks in which they are transferred. It
// is a pure function of the variables and the options, so every process computes the same layout.
//
// A partitioner cuts each variable along its first dimension (the three kinds of TensorFlow). The
// parts are distributed over the servers by bytes. Each server's parts are contiguous in its
// memory. A chunk is a range of that memory that belongs to one optimizer. It is the unit of locks,
// of the order of updates, and of resuming after a broken connection. An update covers a whole
// chunk. Variables therefore share a chunk only if they always have gradients together, or if a
// gradient of zeros is equivalent to none.
//
// An embedding table has no range in that memory. A hash of the key distributes its rows over all
// servers, and on each server over kRowChunks chunks, which hold rows by key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "muster/json.h"

namespace muster {

// The properties of an embedding table, except its optimizer.
struct TableSpec {
  int64_t width = 1;    // Elements per row.
  int initializer = 0;  // An Initializer::Kind.
  double scale = 0;     // Initializer::scale.
  uint64_t seed = 0;    // EmbeddingTable::Options::seed.
  int type = 0;         // A RowType.
  // RowLimits of the whole table.
  int64_t max_rows = 0, max_bytes = 0;
  int eviction = 1;  // An Eviction.
  int64_t admit_after = 1;
  friend bool operator==(const TableSpec&, const TableSpec&) = default;
};

struct VariableSpec {
  std::string name;            // "<model>.<parameter>".
  std::vector<int64_t> shape;  // The type is float32. Empty: a scalar. For a table: {0, width}.
  int optimizer = 0;           // The index of the program's optimizer.
  // The dimensions from the outermost to the innermost in memory. Empty: row-major.
  std::vector<int64_t> order;
  std::optional<TableSpec> table = {};
  // Variables share a chunk only if they have the same optimizer and the same value here.
  int together = 0;
  int64_t elements() const;  // Returns kMostVariableElements if there are more.
};

// For all variables together: 4 TiB.
inline constexpr int64_t kMostVariableElements = int64_t{1} << 40;

inline constexpr int kRowChunks = 16;  // Per table and server.
// The server of a key's row, and the index among the table's chunks there.
struct RowPlace {
  int server = 0, chunk = 0;
};
RowPlace PlaceOfRow(uint64_t key, int servers);

// The job's "parameter_server.partitioner".
struct Partitioner {
  enum class Kind {
    kMinSize,  // As many parts as servers, but no part smaller than `bytes`.
    kMaxSize,  // No part larger than `bytes`.
    kFixed,    // Exactly `parts` parts.
  };
  Kind kind = Kind::kMinSize;
  int64_t bytes = 256 << 10;
  std::optional<int64_t> parts;  // For kMinSize and kMaxSize: the maximum.
};
// Parses {"name": "min_size" | "max_size" | "fixed", "bytes": ..., "parts": ...}, or the name
// alone.
absl::StatusOr<Partitioner> ParsePartitioner(const Json& json);

// Elements [begin, end) of a variable, in whole rows, at `offset` of the server's memory.
struct VariablePart {
  int variable = 0;
  int64_t begin = 0, end = 0;
  int server = 0;
  int64_t offset = 0;
  int64_t elements() const { return end - begin; }
};

// Elements [begin, end) of a server's memory.
struct Chunk {
  int server = 0;
  int64_t begin = 0, end = 0;
  int optimizer = 0;
  // The variable whose rows it holds. Such a chunk is not a range and has no elements.
  int table = -1;
  int64_t elements() const { return end - begin; }
  bool rows() const { return table >= 0; }
};

struct Layout {
  std::vector<VariablePart> parts;         // By variable, then by position in it.
  std::vector<std::vector<Chunk>> chunks;  // By server, in the order of its memory.
  std::vector<int64_t> elements;           // By server.
};

struct LayoutOptions {
  int servers = 1;
  Partitioner partitioner;
  int64_t chunk_bytes = 256 << 10;
};

// Returns a ConfigurationError if sizes from another process are negative, or exceed the limits on
// elements or chunks.
absl::Status CheckSizes(const std::vector<VariableSpec>& variables, const LayoutOptions& options);

// REQUIRES: at least one server. Sizes from another process must pass CheckSizes first.
Layout MakeLayout(const std::vector<VariableSpec>& variables, const LayoutOptions& options);

// A digest of everything that a worker and a server must agree on before a transfer: names, shapes,
// optimizers and placement. 16 hex digits.
std::string DigestOf(const std::vector<VariableSpec>& variables, const LayoutOptions& options);
// Returns the first difference between two lists of variables, as the end of a sentence: "the shape
// of conv1.weight: [32, 1, 3, 3] here, [16, 1, 3, 3] there". Returns "" if there is none.
std::string FirstDifference(const std::vector<VariableSpec>& mine,
                            const std::vector<VariableSpec>& theirs);

}  // namespace muster
