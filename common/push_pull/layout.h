// Which parameter server holds which part of which variable, and the chunks in which parts travel:
// a pure function of the variables and the options, so that every process computes the same.
//
// A variable is cut along its first dimension by a partitioner (TensorFlow's three), the parts are
// spread over the servers by bytes, and each server's parts lie one after the other in its memory.
// A chunk is a range of that memory, of one optimizer: the unit of locks, of the order of updates
// and of what is resumed after a broken connection. An update is of a whole chunk, so that
// variables of which one may have a gradient and another one none share none, unless a gradient of
// zeros is the same as none.
//
// An embedding table has no place in that memory: its rows are spread over all servers by a hash of
// the key, on each over kRowChunks chunks, which hold rows by key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "muster/json.h"

namespace muster {

// What an embedding table is, besides its optimizer.
struct TableSpec {
  int64_t width = 1;    // of a row
  int initializer = 0;  // Initializer::Kind
  double scale = 0;     // ... and scale
  uint64_t seed = 0;    // EmbeddingTable::Options'
  int type = 0;         // RowType
  // RowLimits, of the whole table.
  int64_t max_rows = 0, max_bytes = 0;
  int eviction = 1;  // Eviction
  int64_t admit_after = 1;
  friend bool operator==(const TableSpec&, const TableSpec&) = default;
};

struct VariableSpec {
  std::string name;            // "<model>.<parameter>"
  std::vector<int64_t> shape;  // of float32; none: a scalar; of a table: {0, width}
  int optimizer = 0;           // which of the program's
  // The dimensions from the outermost to the innermost in memory; none: row-major.
  std::vector<int64_t> order;
  std::optional<TableSpec> table = {};
  // Variables share chunks only with those of the same optimizer and the same number here.
  int together = 0;
  int64_t elements() const;
};

inline constexpr int kRowChunks = 16;  // of one table on one server
// Where the row of a key lives: which server, and which of the table's chunks there.
struct RowPlace {
  int server = 0, chunk = 0;
};
RowPlace PlaceOfRow(uint64_t key, int servers);

// "parameter_server.partitioner".
struct Partitioner {
  enum class Kind {
    kMinSize,  // as many parts as there are servers, but none smaller than `bytes`
    kMaxSize,  // no part larger than `bytes`
    kFixed,    // `parts`
  };
  Kind kind = Kind::kMinSize;
  int64_t bytes = 256 << 10;
  std::optional<int64_t> parts;  // kMinSize, kMaxSize: at the most
};
// {"name": "min_size" | "max_size" | "fixed", "bytes": ..., "parts": ...}, or the name alone.
absl::StatusOr<Partitioner> ParsePartitioner(const Json& json);

// Elements [begin, end) of a variable, whole rows, at `offset` of its server's memory.
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
  int table = -1;  // variable whose rows it holds; then it is no range, and has no elements
  int64_t elements() const { return end - begin; }
  bool rows() const { return table >= 0; }
};

struct Layout {
  std::vector<VariablePart> parts;         // by variable, then by place in it
  std::vector<std::vector<Chunk>> chunks;  // by server, in the order of its memory
  std::vector<int64_t> elements;           // of each server
};

struct LayoutOptions {
  int servers = 1;
  Partitioner partitioner;
  int64_t chunk_bytes = 256 << 10;
};

// Whether MakeLayout can be asked for it: sizes that are not negative and whose products are
// numbers, and no more parts and chunks than a process has the memory for (kMostChunks). A
// ConfigurationError names the variable, or the key. What comes from another process is checked
// first.
inline constexpr int64_t kMostChunks = 1 << 22;
absl::Status CheckLayout(const std::vector<VariableSpec>& variables, const LayoutOptions& options);
// REQUIRES: at least one server; CheckLayout is OK.
Layout MakeLayout(const std::vector<VariableSpec>& variables, const LayoutOptions& options);

// Of all that a worker and a server must agree on before a byte moves: names, shapes, optimizers
// and where everything lies. 16 hex digits.
std::string DigestOf(const std::vector<VariableSpec>& variables, const LayoutOptions& options);
// The first thing in which two lists of variables differ, as a sentence's end: "the shape of
// conv1.weight: [32, 1, 3, 3] here, [16, 1, 3, 3] there"; "" if none.
std::string FirstDifference(const std::vector<VariableSpec>& mine,
                            const std::vector<VariableSpec>& theirs);

}  // namespace muster
