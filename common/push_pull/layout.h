// A layout assigns the parts of each variable to parameter servers. It also defines the chunks, the
// units in which workers transfer the parts. The layout is a pure function of the variables and the
// options. Every process therefore computes the same layout.
//
// A partitioner divides each variable into parts along the first dimension. TensorFlow has the same
// three kinds of partitioners. The parts are distributed so that all servers hold about the same
// number of bytes. The parts of a server are contiguous in the server's memory.
//
// A chunk is a range of a server's memory that belongs to one optimizer. A chunk is also the unit
// of locking, and an update covers a whole chunk. Two variables may share a chunk in two cases
// only. Either they always have gradients at the same time, or a gradient of zeros has the same
// effect on both as no gradient.
//
// The rows of an embedding table are not in these ranges. A hash of the row's key selects a server
// and one of the table's kRowChunks chunks on this server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "muster/json.h"

namespace muster::push_pull {

// The properties of an embedding table, except its optimizer. The comments of the fields name types
// and fields of rows/embedding_table.h.
struct TableSpec {
  int64_t width = 1;    // The number of elements of a row.
  int initializer = 0;  // An Initializer::Kind.
  double scale = 0;     // Initializer::scale.
  uint64_t seed = 0;    // EmbeddingTable::Options::seed.
  int type = 0;         // A RowType.
  // The fields of RowLimits, for all servers together.
  int64_t max_rows = 0, max_bytes = 0;
  int eviction = 1;  // An Eviction.
  int64_t admit_after = 1;
  friend bool operator==(const TableSpec&, const TableSpec&) = default;
};

struct VariableSpec {
  std::string name;            // "<model>.<parameter>".
  std::vector<int64_t> shape;  // Empty: a scalar. An embedding table has {0, width}.
  int optimizer = 0;           // The index of the optimizer in the program.
  // The order of the dimensions in memory, outermost first. Empty: row-major.
  std::vector<int64_t> order;
  std::optional<TableSpec> table = {};  // Set for embedding tables.
  // Two variables may share a chunk only if they have the same `optimizer` and the same `together`.
  int together = 0;
  // Returns the number of elements, or kMaxVariableElements if the shape has more.
  int64_t elements() const;
};

// The maximum number of elements of all variables together: 4 TiB of memory.
inline constexpr int64_t kMaxVariableElements = int64_t{1} << 40;

inline constexpr int kRowChunks = 16;  // The number of chunks of a table on one server.
// The place of a row: the server, and the index of the chunk among the table's chunks on this
// server.
struct RowPlace {
  int server = 0, chunk = 0;
};
RowPlace PlaceOfRow(uint64_t key, int servers);

// The job's "parameter_server.partitioner".
struct Partitioner {
  enum class Kind {
    kMinSize,  // As many parts of at least `bytes` bytes as possible.
    kMaxSize,  // As few parts of at most `bytes` bytes as possible.
    kFixed,    // `parts` parts.
  };
  Kind kind = Kind::kMinSize;
  int64_t bytes = 256 << 10;
  // For kFixed, the number of parts. Otherwise the maximum number of parts. The default is the
  // number of servers for kMinSize, and no maximum for kMaxSize.
  std::optional<int64_t> parts;
};
// Parses a name, or an object {"name": "min_size" | "max_size" | "fixed", "bytes": ..., "parts":
// ...}.
absl::StatusOr<Partitioner> ParsePartitioner(const Json& json);

// The elements [begin, end) of a variable. A part has whole rows of the first dimension.
struct VariablePart {
  int variable = 0;
  int64_t begin = 0, end = 0;
  int server = 0;
  int64_t offset = 0;  // The position in the server's memory, in elements.
  int64_t elements() const { return end - begin; }
};

// A chunk is either a range [begin, end) of elements of a server's memory, or rows of an embedding
// table. A chunk of rows has an empty range.
struct Chunk {
  int server = 0;
  int64_t begin = 0, end = 0;
  int optimizer = 0;
  // For a chunk of rows, the index of the table among the variables. -1: the chunk is a range.
  int table = -1;
  int64_t elements() const { return end - begin; }
  bool rows() const { return table >= 0; }
};

struct Layout {
  std::vector<VariablePart> parts;  // Sorted by variable, then by `begin`.
  // The chunks of each server, in the order of the server's memory. Indexed by server.
  std::vector<std::vector<Chunk>> chunks;
  std::vector<int64_t> elements;  // The size of each server's memory. Indexed by server.
};

struct LayoutOptions {
  int servers = 1;
  Partitioner partitioner;
  int64_t chunk_bytes = 256 << 10;
};

// Checks arguments that come from another process. Returns a ConfigurationError if a size is
// negative, or if there are too many elements or chunks.
absl::Status CheckSizes(const std::vector<VariableSpec>& variables, const LayoutOptions& options);

// REQUIRES: there is at least one server, and CheckSizes returns OK.
Layout MakeLayout(const std::vector<VariableSpec>& variables, const LayoutOptions& options);

// Returns a digest of the variables and the options, in 16 hex digits. A worker and a server must
// have the same digest.
std::string DigestOf(const std::vector<VariableSpec>& variables, const LayoutOptions& options);
// Returns the first difference between two lists of variables as a part of a sentence, such as "the
// shape of conv1.weight: [32, 1, 3, 3] here, [16, 1, 3, 3] there". Returns "" if the lists are
// equal.
std::string FirstDifference(const std::vector<VariableSpec>& mine,
                            const std::vector<VariableSpec>& theirs);

}  // namespace muster::push_pull
