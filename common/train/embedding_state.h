// A process's embedding tables as state: given to a new member, copied into a checkpoint, put back.
// In a checkpoint a table is (train/table_rows.h), sorted by key,
//
//   model      "<table>.keys" int64 [n], "<table>.rows" float32 [n, width]
//   optimizer  "<table>.<slot>" float32 [n, width], or [n, 1] of a rule with one number a row;
//              what evictions go by as "<table>.<column>" int64 [n]; and "<table>.step" int64: the
//              updates so far
//
// Rows are float32 there, whatever type they are kept in, so that a run may go on with another.
// Where a checkpoint lacks what evictions go by, for the table had no cap, all rows have 0.
//
//
// or, where parameter servers held it, all of them in a file for each server, in no order.
// Internal to this folder.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/collective/communicator.h"
#include "common/train/replica.h"
#include "common/train/table_rows.h"

namespace muster {

// Gives every process of the generation the tables that `owner` (a replica that owns its process's
// tables) holds. Made and run by all replicas, which exchange in the constructor what there is.
// Throws StatusError.
class TableTransfer {
 public:
  // `holds`: this replica has the owner's state already, and its process's tables stay.
  TableTransfer(Replica* replica, Communicator* communicator, int owner, bool holds);
  // Whether this replica's process is given rows.
  bool moves() const { return moves_; }
  // The tables are after `step` then. `*whole` is false while rows come in, and remains so where
  // that is cut short. `moment` is called after each piece of rows; may be null.
  void Run(int64_t step, bool* whole, const std::function<void()>& moment);

 private:
  Replica* const replica_;
  Communicator* const communicator_;
  const int owner_;
  bool moves_ = false, anybody_moves_ = false;
  std::vector<int64_t> sizes_, updates_, counted_;  // of the owner's tables
};

// A replica's tables as tensors: first their shapes, then their bytes; none where parameter servers
// hold them. The tables must not change meanwhile.
class TableSnapshot {
 public:
  explicit TableSnapshot(const Replica& replica);
  ~TableSnapshot();
  const std::vector<checkpoint::TensorInfo>& model() const { return model_; }
  const std::vector<checkpoint::TensorInfo>& optimizer() const { return optimizer_; }
  // Copies everything to where these point; by this thread's intra-op threads.
  void CopyOut(std::span<char* const> model, std::span<char* const> optimizer) const;

 private:
  struct Rows;
  const Replica& replica_;
  std::vector<std::unique_ptr<Rows>> rows_;  // by table, sorted by key as int64
  std::vector<checkpoint::TensorInfo> model_, optimizer_;
};

// The replica's tables in a snapshot, which must live meanwhile.
class TableRestore {
 public:
  // With slots where `slots`. `refuse` makes the error of a sentence that says what does not fit.
  static absl::StatusOr<TableRestore> Find(
      const checkpoint::Snapshot& snapshot, const Replica& replica, bool slots,
      const std::function<absl::Status(const std::string&)>& refuse);
  // Whether the tensor belongs to a table.
  bool Has(const checkpoint::Tensor& tensor) const;
  // Puts the rows back; without slots these begin anew. `step` as LocalEmbeddings::set_step.
  // Nothing where parameter servers hold them.
  absl::Status Apply(int64_t step, Replica* replica) const;

 private:
  std::vector<TableRows> tables_;
  bool slots_ = false;
};

// Where a snapshot has the rows of tables: in files of their own, or among its tensors.
checkpoint::RowSources RowsOf(const checkpoint::Snapshot& snapshot);

}  // namespace muster
