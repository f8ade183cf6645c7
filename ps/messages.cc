#include "ps/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/optim/update_kernels.h"
#include "common/push_pull/options.h"
#include "common/push_pull/variable_messages.h"
#include "common/push_pull/wire.h"
#include "common/rpc/channel.h"
#include "common/transport/listener/hello.h"

namespace muster::ps {
namespace {

using push_pull::Chunk;
using push_pull::EmbeddingTable;
using push_pull::VariableSpec;

static_assert(std::endian::native == std::endian::little, "floats travel as they lie in memory");

constexpr int kMaxServers = 4096;
constexpr int64_t kMaxWidth = 1 << 20;

absl::StatusOr<std::vector<float>> FloatsOf(const std::string& bytes) {
  if (bytes.size() % sizeof(float) != 0)
    return ConfigurationError(fmt::format("{} bytes are no whole number of float32", bytes.size()));
  std::vector<float> floats(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

std::string BytesOf(const std::vector<float>& floats) {
  return {reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float)};
}

template <typename Enum>
bool IsOne(int number, Enum last) {
  return number >= 0 && number <= static_cast<int>(last);
}

absl::Status CheckTable(const std::string& name, const push_pull::TableSpec& table) {
  if (table.width < 1 || table.width > kMaxWidth ||
      !IsOne(table.initializer, push_pull::Initializer::Kind::kNormal))
    return ConfigurationError(fmt::format("table {} has rows of width {}, and initializer {}", name,
                                          table.width, table.initializer));
  if (!IsOne(table.type, push_pull::RowType::kBFloat16) ||
      !IsOne(table.eviction, push_pull::Eviction::kLeastFrequent) || table.max_rows < 0 ||
      table.max_bytes < 0 || table.admit_after < 1)
    return ConfigurationError(fmt::format(
        "table {} has rows of type {}, max_rows {}, max_bytes {}, eviction {} and admit_after {}",
        name, table.type, table.max_rows, table.max_bytes, table.eviction, table.admit_after));
  return absl::OkStatus();
}

absl::Status CheckVariables(const std::vector<VariableSpec>& variables,
                            const std::vector<RuleSpec>& rules) {
  for (const VariableSpec& v : variables) {
    if (v.optimizer < 0 || v.optimizer >= static_cast<int>(rules.size()))
      return ConfigurationError(fmt::format("{} belongs to optimizer {}: there are {}", v.name,
                                            v.optimizer, rules.size()));
    if (!v.table && ForTablesAlone(rules[v.optimizer]))
      return ConfigurationError(
          fmt::format("{} has an optimizer that is for rows of embedding tables alone", v.name));
    if (v.table) MUSTER_RETURN_IF_ERROR(CheckTable(v.name, *v.table));
  }
  return absl::OkStatus();
}

// Returns the options of a table's chunk, except its rule.
EmbeddingTable::Options RowsOf(const push_pull::TableSpec& table, int servers) {
  EmbeddingTable::Options rows;
  rows.width = table.width;
  rows.initializer = {static_cast<push_pull::Initializer::Kind>(table.initializer), table.scale};
  rows.seed = table.seed;
  rows.shards = 1;  // Each chunk has its own lock.
  rows.type = static_cast<push_pull::RowType>(table.type);
  // The chunk's part of the table's limit, at least 1, because 0 means no limit.
  const int64_t chunks = static_cast<int64_t>(servers) * push_pull::kRowChunks;
  rows.limits.max_rows = table.max_rows / chunks + (table.max_rows % chunks != 0);
  if (table.max_bytes > 0) rows.limits.max_bytes = std::max<int64_t>(1, table.max_bytes / chunks);
  rows.limits.eviction = static_cast<push_pull::Eviction>(table.eviction);
  rows.limits.admit_after = table.admit_after;
  return rows;
}

// Returns an error if a chunk with its slots would be too large for one message.
absl::Status CheckMessageSize(const ShardSpec& spec) {
  for (const std::vector<Chunk>& chunks : spec.layout.chunks)
    for (const Chunk& chunk : chunks) {
      const int64_t copies =
          1 + static_cast<int64_t>(ShapedSlots(spec.rules[chunk.optimizer]).size());
      const int64_t bytes = chunk.elements() * copies * static_cast<int64_t>(sizeof(float));
      if (bytes > rpc::kMaxMessageBytes - (1 << 20))
        return ConfigurationError(
            fmt::format("parameter_server.chunk_bytes is too large: a chunk with its slots has {} "
                        "bytes, and a message holds {}",
                        bytes, rpc::kMaxMessageBytes - (1 << 20)));
    }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ShardSpec> SpecOf(const proto::CreateRequest& request, int task) {
  if (request.task() != task)
    return ConfigurationError(
        fmt::format("the chief takes this process for ps {}, and it is ps {}: give all tasks the "
                    "same cluster in TF_CONFIG",
                    request.task(), task));
  if (request.servers() <= task || request.servers() > kMaxServers)
    return ConfigurationError(fmt::format("{} servers do not fit ps {}", request.servers(), task));
  ShardSpec spec;
  std::vector<ClipOptions> clips;  // Indexed by optimizer.
  for (const std::string& text : request.optimizers()) {
    MUSTER_ASSIGN_OR_RETURN(const Json json, ParseJson(text, "optimizer"));
    MUSTER_ASSIGN_OR_RETURN(const OptimizerSpec optimizer, ParseOptimizer(json));
    spec.rules.push_back(optimizer.rule);
    clips.push_back(optimizer.clip);
  }
  push_pull::ParameterServerOptions options;
  if (!request.parameter_server().empty()) {
    MUSTER_ASSIGN_OR_RETURN(const Json json,
                            ParseJson(request.parameter_server(), "parameter_server"));
    MUSTER_ASSIGN_OR_RETURN(options, push_pull::ParseParameterServer(json));
  }
  const std::vector<VariableSpec> variables = push_pull::SpecsOf(request.variables());
  MUSTER_RETURN_IF_ERROR(CheckVariables(variables, spec.rules));
  const push_pull::LayoutOptions layout{request.servers(), options.partitioner,
                                        options.chunk_bytes};
  MUSTER_RETURN_IF_ERROR(push_pull::CheckSizes(variables, layout));
  const std::string digest = push_pull::DigestOf(variables, layout);
  if (digest != request.digest())
    return ConfigurationError(
        fmt::format("the chief's variables and layout have digest {} there and {} here: start all "
                    "tasks from one version of Muster",
                    request.digest(), digest));
  spec.digest = push_pull::LayoutNumber(digest);
  spec.layout = push_pull::MakeLayout(variables, layout);
  for (size_t v = 0; v < variables.size(); ++v) {
    if (!variables[v].table) continue;
    EmbeddingTable::Options& rows = spec.tables[static_cast<int>(v)];
    rows = RowsOf(*variables[v].table, request.servers());
    rows.rule = spec.rules[variables[v].optimizer];
    spec.table_names[static_cast<int>(v)] = variables[v].name;
    rows.clip = clips[variables[v].optimizer];
  }
  spec.checksum = options.checksum;
  spec.compression = options.compression;
  MUSTER_RETURN_IF_ERROR(CheckMessageSize(spec));
  return spec;
}

absl::StatusOr<PsView> ViewOf(const proto::View& view, int shards) {
  if (view.number() == 0) return ConfigurationError("a view has number 0");
  if (view.ticket().empty() || view.ticket().size() > transport::kMaxTicketBytes)
    return ConfigurationError(fmt::format("a view's ticket has {} bytes, not 1 to {}",
                                          view.ticket().size(), transport::kMaxTicketBytes));
  if (view.shards_size() != shards)
    return ConfigurationError(fmt::format("view {:#x} places {} shards, not {}", view.number(),
                                          view.shards_size(), shards));
  PsView result{view.number(), view.ticket(), std::vector<PsView::Place>(shards)};
  std::vector<bool> placed(shards);
  for (const proto::ShardPlace& place : view.shards()) {
    if (place.shard() < 0 || place.shard() >= shards || placed[place.shard()])
      return ConfigurationError(fmt::format(
          "view {:#x} places shard {} twice, or it does not exist", view.number(), place.shard()));
    if (place.primary() < -1 || place.primary() >= shards || place.backup() < -1 ||
        place.backup() >= shards || (place.backup() >= 0 && place.backup() == place.primary()))
      return ConfigurationError(fmt::format("view {:#x} gives shard {} to ps {} and ps {}",
                                            view.number(), place.shard(), place.primary(),
                                            place.backup()));
    placed[place.shard()] = true;
    result.shards[place.shard()] = {place.primary(), place.backup(), place.backup_address(),
                                    place.backup_in_sync()};
  }
  return result;
}

absl::StatusOr<ChunkState> StateOf(const proto::ChunkContent& content, const ShardSpec& spec) {
  const auto& chunks = spec.layout.chunks;
  if (content.shard() < 0 || content.shard() >= static_cast<int>(chunks.size()))
    return ConfigurationError(
        fmt::format("there is no shard {}: the layout has {}", content.shard(), chunks.size()));
  if (content.chunk() < 0 || content.chunk() >= static_cast<int>(chunks[content.shard()].size()))
    return ConfigurationError(fmt::format("shard {} has no chunk {}: it has {}", content.shard(),
                                          content.chunk(), chunks[content.shard()].size()));
  if (content.updates() < 0)
    return ConfigurationError(fmt::format("shard {}, chunk {}: {} updates", content.shard(),
                                          content.chunk(), content.updates()));
  MUSTER_ASSIGN_OR_RETURN(std::vector<float> parameters, FloatsOf(content.parameters()));
  ChunkState state;
  const Chunk& chunk = chunks[content.shard()][content.chunk()];
  if (content.slots_size() == 0 && chunk.rows() && parameters.empty()) {
    state.slots.resize(EmbeddingTable::Columns(spec.tables.at(chunk.table)).size() - 1);
  } else if (content.slots_size() == 0 && !chunk.rows()) {
    state = FreshState(spec.rules[chunk.optimizer], parameters);
  } else {
    state.parameters = std::move(parameters);
    for (const std::string& slot : content.slots()) {
      MUSTER_ASSIGN_OR_RETURN(std::vector<float> floats, FloatsOf(slot));
      state.slots.push_back(std::move(floats));
    }
  }
  state.updates = content.updates();
  for (const auto& [worker, last] : content.last())
    state.last[worker] = {last.incarnation(), last.sequence()};
  return state;
}

proto::ChunkContent ContentOf(int shard, int chunk, const ChunkState& state) {
  proto::ChunkContent content;
  content.set_shard(shard);
  content.set_chunk(chunk);
  content.set_updates(state.updates);
  content.set_parameters(BytesOf(state.parameters));
  for (const std::vector<float>& slot : state.slots) content.add_slots(BytesOf(slot));
  for (const auto& [worker, last] : state.last) {
    proto::ChunkContent::Last& out = (*content.mutable_last())[worker];
    out.set_incarnation(last.incarnation);
    out.set_sequence(last.sequence);
  }
  return content;
}

absl::StatusOr<std::optional<proto::ChunkContent>> ContentJoiner::Add(
    const proto::ChunkContent& piece, const ShardSpec& spec) {
  const std::pair place(piece.shard(), piece.chunk());
  const auto& chunks = spec.layout.chunks;
  const bool exists = place.first >= 0 && place.first < static_cast<int>(chunks.size()) &&
                      place.second >= 0 &&
                      place.second < static_cast<int>(chunks[place.first].size());
  // If the piece is wrong, StateOf reports the error.
  if (!exists || chunks[place.first][place.second].rows()) return std::optional(piece);
  const auto begun = open_.find(place);
  if (begun == open_.end() && !piece.more()) return std::optional(piece);
  proto::ChunkContent& whole = open_[place];
  if (begun == open_.end()) {
    whole = piece;
  } else {
    if (piece.slots_size() != whole.slots_size())
      return ConfigurationError(fmt::format("shard {}, chunk {}: pieces with {} and {} slots",
                                            place.first, place.second, whole.slots_size(),
                                            piece.slots_size()));
    whole.mutable_parameters()->append(piece.parameters());
    for (int i = 0; i < piece.slots_size(); ++i) whole.mutable_slots(i)->append(piece.slots(i));
  }
  const auto most =
      static_cast<size_t>(chunks[place.first][place.second].elements()) * sizeof(float);
  const auto too_long = [most](const std::string& bytes) { return bytes.size() > most; };
  if (too_long(whole.parameters()) ||
      std::any_of(whole.slots().begin(), whole.slots().end(), too_long))
    return ConfigurationError(fmt::format("shard {}, chunk {} has {} bytes, and more came",
                                          place.first, place.second, most));
  if (piece.more()) return std::optional<proto::ChunkContent>();
  *whole.mutable_last() = piece.last();
  whole.set_more(false);
  std::optional<proto::ChunkContent> result = std::move(whole);
  open_.erase(place);
  return result;
}

}  // namespace muster::ps
