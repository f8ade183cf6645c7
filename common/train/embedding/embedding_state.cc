#include "common/train/embedding/embedding_state.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "common/base/prefetch.h"

namespace muster {
namespace {

using checkpoint::DType;
using checkpoint::Tensor;
using checkpoint::TensorInfo;
using collective::Communicator;
using push_pull::EmbeddingTable;
using push_pull::RowColumn;

// Rows are sent in pieces of about this size.
constexpr int64_t kBroadcastBytes = 4 << 20;

using Row = EmbeddingTable::Place;

std::vector<RowColumn> ColumnsOf(const NamedEmbedding& table) {
  return EmbeddingTable::Columns(table.options);
}

// Returns the description of a column's tensor with `count` rows.
TensorInfo InfoOf(const NamedEmbedding& table, const RowColumn& column, int64_t count) {
  const std::string name = table.name + "." + column.name;
  if (column.integer) return {name, DType::kInt64, {count}};
  return {name, DType::kFloat32, {count, column.elements}};
}

// Sorts the rows by key, as int64 in ascending order. This is a radix sort that begins with the
// least significant byte. It skips bytes that are equal in all keys, which are most bytes of small
// keys.
void SortByKey(std::vector<Row>* rows) {
  constexpr uint64_t kSign = 1ull << 63;
  std::vector<Row> other(rows->size());
  for (int shift = 0; shift < 64; shift += 8) {
    const auto digit = [shift](const Row& row) { return ((row.key ^ kSign) >> shift) & 0xff; };
    std::array<size_t, 257> begin = {};
    for (const Row& row : *rows) ++begin[digit(row) + 1];
    if (std::find(begin.begin(), begin.end(), rows->size()) != begin.end()) continue;
    for (size_t d = 0; d < 256; ++d) begin[d + 1] += begin[d];
    for (const Row& row : *rows) other[begin[digit(row)]++] = row;
    rows->swap(other);
  }
}

at::Tensor BroadcastFrom(int owner, at::Tensor values, c10::Device device,
                         Communicator* communicator) {
  values = values.to(device);
  ThrowIfError(communicator->Broadcast(BufferOf(values), owner)->Wait());
  return values.to(at::kCPU);
}

// Returns true if any replica passes true.
bool AnyOf(bool mine, c10::Device device, Communicator* communicator) {
  at::Tensor any = at::full({1}, mine ? 1 : 0, at::kLong).to(device);
  ThrowIfError(communicator->AllReduce(BufferOf(any), ReduceOp::kMax)->Wait());
  return any.to(at::kCPU).const_data_ptr<int64_t>()[0] != 0;
}

// Broadcasts the owner's `count` rows of one table, and stores them in `into`. `into` is null if
// this process already has the rows.
void BroadcastRows(const EmbeddingTable& from, const std::vector<RowColumn>& columns, int64_t count,
                   bool is_owner, EmbeddingTable* into,
                   const std::function<at::Tensor(at::Tensor)>& broadcast) {
  const int64_t stride = from.row_elements();
  const int64_t bytes = 8 + 4 * stride;
  const int64_t piece = std::max<int64_t>(1, kBroadcastBytes / bytes);
  std::vector<Row> rows;
  if (is_owner) rows = from.Places();
  for (int64_t begin = 0; begin < count; begin += piece) {
    const int64_t n = std::min(piece, count - begin);
    at::Tensor values = at::zeros({(n * bytes + 7) / 8}, at::kLong);
    if (is_owner) {
      auto* key = reinterpret_cast<uint64_t*>(values.mutable_data_ptr<int64_t>());
      auto* to = reinterpret_cast<float*>(key + n);
      for (int64_t i = begin; i < begin + n; ++i) {
        *key++ = rows[i].key;
        for (size_t c = 0; c < columns.size(); to += columns[c++].elements)
          from.Read(rows[i], c, to);
      }
    }
    values = broadcast(values);
    if (into == nullptr) continue;
    const auto* keys = reinterpret_cast<const uint64_t*>(values.const_data_ptr<int64_t>());
    const float* row = reinterpret_cast<const float*>(keys + n);
    for (int64_t i = 0; i < n; ++i, row += stride)
      ThrowIfError(into->Restore(keys[i], {row, static_cast<size_t>(stride)}));
  }
}

// Broadcasts the counters of keys that are not admitted yet. `count` is their number.
void BroadcastCounted(const EmbeddingTable& from, int64_t count, bool is_owner,
                      EmbeddingTable* into,
                      const std::function<at::Tensor(at::Tensor)>& broadcast) {
  if (count == 0) return;
  at::Tensor values = at::zeros({count}, at::kLong);
  if (is_owner) {
    const std::vector<uint64_t> counted = from.Counted();
    std::copy(counted.begin(), counted.end(), values.mutable_data_ptr<int64_t>());
  }
  values = broadcast(values);
  if (into == nullptr) return;
  into->RestoreCounted({reinterpret_cast<const uint64_t*>(values.const_data_ptr<int64_t>()),
                        static_cast<size_t>(count)});
}

}  // namespace

TableTransfer::TableTransfer(Replica* replica, Communicator* communicator, int owner, bool holds)
    : replica_(replica), communicator_(communicator), owner_(owner) {
  LocalEmbeddings& tables = replica->tables();
  if (tables.size() == 0 || communicator->size() == 1) return;
  at::Tensor numbers = at::empty({1 + 3 * tables.size()}, at::kLong);
  int64_t* values = numbers.data_ptr<int64_t>();
  values[0] = static_cast<int64_t>(tables.identity());
  for (int t = 0; t < tables.size(); ++t) {
    values[1 + 3 * t] = tables.table(t).size();
    values[2 + 3 * t] = tables.table(t).updates();
    values[3 + 3 * t] = static_cast<int64_t>(tables.table(t).Counted().size());
  }
  numbers = BroadcastFrom(owner, numbers, replica->device(), communicator);
  values = numbers.data_ptr<int64_t>();
  moves_ = values[0] != static_cast<int64_t>(tables.identity()) && !holds;
  anybody_moves_ = AnyOf(moves_, replica->device(), communicator);
  for (int t = 0; t < tables.size(); ++t) {
    sizes_.push_back(values[1 + 3 * t]);
    updates_.push_back(values[2 + 3 * t]);
    counted_.push_back(values[3 + 3 * t]);
  }
}

void TableTransfer::Run(int64_t step, bool* whole, const std::function<void()>& moment) {
  LocalEmbeddings& tables = replica_->tables();
  if (tables.size() == 0) return;
  const at::NoGradGuard no_grad;
  const bool takes = moves_ && replica_->owns_tables();
  if (takes) *whole = false;
  for (int t = 0; anybody_moves_ && t < tables.size(); ++t) {
    if (takes) tables.Reset(t);
    EmbeddingTable* const into = takes ? &tables.table(t) : nullptr;
    const bool is_owner = communicator_->rank() == owner_;
    const auto broadcast = [&](at::Tensor values) {
      values = BroadcastFrom(owner_, std::move(values), replica_->device(), communicator_);
      if (moment) moment();
      return values;
    };
    BroadcastRows(tables.table(t), ColumnsOf(replica_->embeddings()[t]), sizes_[t], is_owner, into,
                  broadcast);
    BroadcastCounted(tables.table(t), counted_[t], is_owner, into, broadcast);
    if (takes) tables.table(t).set_updates(updates_[t]);
  }
  if (replica_->owns_tables()) tables.set_step(step);
  if (takes) *whole = true;
  // No replica may start a step before the tables of its process are complete.
  if (communicator_->size() > 1) ThrowIfError(communicator_->Barrier()->Wait());
}

// ---- Snapshot

struct TableSnapshot::Rows : std::vector<Row> {};

TableSnapshot::TableSnapshot(const Replica& replica) : replica_(replica) {
  if (!replica.holds_tables()) return;
  const LocalEmbeddings& tables = replica.tables();
  for (int t = 0; t < tables.size(); ++t) {
    const NamedEmbedding& named = replica.embeddings()[t];
    rows_.push_back(std::make_unique<Rows>());
    static_cast<std::vector<Row>&>(*rows_[t]) = tables.table(t).Places();
    SortByKey(rows_[t].get());
    const auto count = static_cast<int64_t>(rows_[t]->size());
    model_.push_back({named.name + ".keys", DType::kInt64, {count}});
    const std::vector<RowColumn> columns = ColumnsOf(named);
    model_.push_back(InfoOf(named, columns[0], count));
    for (size_t c = 1; c < columns.size(); ++c)
      optimizer_.push_back(InfoOf(named, columns[c], count));
    optimizer_.push_back({named.name + ".step", DType::kInt64, {}});
  }
}

TableSnapshot::~TableSnapshot() = default;

void TableSnapshot::CopyOut(std::span<char* const> model, std::span<char* const> optimizer) const {
  size_t slot = 0;
  for (size_t t = 0; t < rows_.size(); ++t) {
    const EmbeddingTable& table = replica_.tables().table(static_cast<int>(t));
    const Rows& rows = *rows_[t];
    const std::vector<RowColumn> columns = ColumnsOf(replica_.embeddings()[t]);
    const size_t slots = columns.size() - 1;
    at::parallel_for(0, static_cast<int64_t>(rows.size()), 8192, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        if (i + kPrefetchDistance < rows.size()) {
          const float* next = rows[i + kPrefetchDistance].row;
          for (int64_t at = 0; at < table.row_elements(); at += 16) __builtin_prefetch(next + at);
        }
        std::copy_n(reinterpret_cast<const char*>(&rows[i].key), 8, model[2 * t] + 8 * i);
        for (size_t c = 0; c < columns.size(); ++c) {
          char* const to = c == 0 ? model[2 * t + 1] : optimizer[slot + c - 1];
          const auto elements = static_cast<size_t>(columns[c].elements);
          table.Read(rows[i], c, reinterpret_cast<float*>(to) + i * elements);
        }
      }
    });
    const int64_t updates = table.updates();
    std::copy_n(reinterpret_cast<const char*>(&updates), 8, optimizer[slot + slots]);
    slot += slots + 1;
  }
}

// ---- Restore

checkpoint::RowSources RowsOf(const checkpoint::Snapshot& snapshot) {
  if (!snapshot.tables.empty()) return snapshot.tables;
  return {checkpoint::RowsInMemory(snapshot.model, snapshot.optimizer)};
}

absl::StatusOr<TableRestore> TableRestore::Find(
    const checkpoint::Snapshot& snapshot, const Replica& replica, bool slots,
    const std::function<absl::Status(const std::string&)>& refuse) {
  TableRestore restore;
  restore.slots_ = slots;
  if (replica.embeddings().empty()) return restore;
  const checkpoint::RowSources sources = RowsOf(snapshot);
  for (const NamedEmbedding& named : replica.embeddings()) {
    absl::StatusOr<TableRows> table = TableRows::Find(sources, named.name, named.options, slots);
    if (!table.ok() && ExitCodeOf(table.status()) == ExitCode::kConfiguration)
      return refuse(std::string(Message(table.status())));
    MUSTER_RETURN_IF_ERROR(table.status());
    restore.tables_.push_back(*std::move(table));
  }
  return restore;
}

bool TableRestore::Has(const Tensor& tensor) const {
  return std::any_of(tables_.begin(), tables_.end(), [&tensor](const TableRows& table) {
    const auto& names = table.names();
    return std::find(names.begin(), names.end(), tensor.name) != names.end();
  });
}

absl::Status TableRestore::Apply(int64_t step, Replica* replica) const {
  // Another replica restores the tables, or parameter servers hold them.
  if (!replica->owns_tables() || !replica->holds_tables()) return absl::OkStatus();
  LocalEmbeddings& tables = replica->tables();
  for (size_t t = 0; t < tables_.size(); ++t) {
    tables.Reset(static_cast<int>(t));
    EmbeddingTable& table = tables.table(static_cast<int>(t));
    const auto elements = static_cast<size_t>(table.row_elements());
    MUSTER_RETURN_IF_ERROR(tables_[t].ForEach(
        [&](std::span<const uint64_t> keys, std::span<const float> rows) -> absl::Status {
          for (size_t i = 0; i < keys.size(); ++i)
            MUSTER_RETURN_IF_ERROR(table.Restore(keys[i], rows.subspan(i * elements, elements)));
          return absl::OkStatus();
        }));
    if (slots_) table.set_updates(tables_[t].updates());
  }
  tables.set_step(step);
  return absl::OkStatus();
}

}  // namespace muster
