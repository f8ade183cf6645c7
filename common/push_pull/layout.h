// A layout says which parameter server holds which part of each variable, and in which chunks
// workers transfer the parts. The layout is a pure function of the variables and the options, so
// every process computes the same one.
//
// A partitioner cuts each variable along its first dimension. The three kinds of partitioners are
// those of TensorFlow. The parts are distributed so that all servers hold about as many bytes. Each
// server's parts are contiguous in its memory.
//
// A chunk is a range of a server's memory that belongs to one optimizer. Each chunk has its own
// lock and its own order of updates. After a broken connection, a push continues with the chunks
// that do not have it yet. An update covers a whole chunk. Variables therefore share a chunk only
// if they always have gradients together, or if a gradient of zeros has the same effect as no
// gradient.
//
// An embedding table has no range in a server's memory. A hash of the key assigns each row to a
// server and to one of the table's kRowChunks chunks on that server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "muster/json.h"

namespace muster::push_pull {

// The properties of an embedding table, except its optimizer.
struct TableSpec {
  int64_t width = 1;    // Elements per row.
  int initializer = 0;  // An Initializer::Kind.
  double scale = 0;     // Initializer::scale.
  uint64_t seed = 0;    // EmbeddingTable::Options::seed.
  int type = 0;         // A RowType.
  // RowLimits, for the whole table.
  int64_t max_rows = 0, max_bytes = 0;
  int eviction = 1;  // An Eviction.
  int64_t admit_after = 1;
  friend bool operator==(const TableSpec&, const TableSpec&) = default;
};

struct VariableSpec {
  std::string name;            // "<model>.<parameter>".
  std::vector<int64_t> shape;  // Of a float32 tensor. Empty: a scalar. For a table: {0, width}.
  int optimizer = 0;           // The index of the program's optimizer.
  // The order of dimensions in memory, outermost first. Empty: row-major.
  std::vector<int64_t> order;
  std::optional<TableSpec> table = {};
  // Variables share a chunk only if they have the same optimizer and the same value here.
  int together = 0;
  int64_t elements() const;  // At most kMaxVariableElements, even if the shape has more.
};

// The maximum number of elements of all variables together: 4 TiB of memory.
inline constexpr int64_t kMaxVariableElements = int64_t{1} << 40;

inline constexpr int kRowChunks = 16;  // Per table and server.
// The server that holds a key's row, and the chunk's index among the table's chunks there.
struct RowPlace {
  int server = 0, chunk = 0;
};
RowPlace PlaceOfRow(uint64_t key, int servers);

// The job's "parameter_server.partitioner".
struct Partitioner {
  enum class Kind {
    kMinSize,  // One part per server, or fewer, so that each part has at least `bytes`.
    kMaxSize,  // As many parts as needed, so that each part has at most `bytes`.
    kFixed,    // Exactly `parts` parts.
  };
  Kind kind = Kind::kMinSize;
  int64_t bytes = 256 << 10;
  std::optional<int64_t> parts;  // For kMinSize and kMaxSize: the maximum number of parts.
};
// Parses {"name": "min_size" | "max_size" | "fixed", "bytes": ..., "parts": ...}, or the name
// alone.
absl::StatusOr<Partitioner> ParsePartitioner(const Json& json);

// Elements [begin, end) of a variable, which are whole rows. They lie at `offset`, an index of an
// element, in the server's memory.
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
  // The index, among the variables, of the table whose rows the chunk holds. -1: the chunk is a
  // range. A chunk of rows has no elements.
  int table = -1;
  int64_t elements() const { return end - begin; }
  bool rows() const { return table >= 0; }
};

struct Layout {
  std::vector<VariablePart> parts;  // In order of variables, then of `begin`.
  // Indexed by server, in the order of the server's memory.
  std::vector<std::vector<Chunk>> chunks;
  std::vector<int64_t> elements;  // Indexed by server.
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

// Returns a digest, 16 hex digits, of everything that a worker and a server must agree on before a
// transfer: names, shapes, optimizers and placement.
std::string DigestOf(const std::vector<VariableSpec>& variables, const LayoutOptions& options);
// Returns the first difference between two lists of variables, worded as the end of a sentence:
// "the shape of conv1.weight: [32, 1, 3, 3] here, [16, 1, 3, 3] there". Returns "" if they are
// equal.
std::string FirstDifference(const std::vector<VariableSpec>& mine,
                            const std::vector<VariableSpec>& theirs);

}  // namespace muster::push_pull
