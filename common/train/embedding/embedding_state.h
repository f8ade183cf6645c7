// Transfers a process's embedding tables to new members, saves them to checkpoints, and restores
// them. A checkpoint has these tensors for each table (train/table_rows.h), sorted by key:
//
//   model      "<table>.keys" int64 [n], "<table>.rows" float32 [n, width]
//   optimizer  "<table>.<slot>" float32 [n, width], or [n, 1] of a rule with one number a row;
//              the eviction columns as "<table>.<column>" int64 [n]; and "<table>.step" int64: the
//              number of updates so far
//
// Saved rows are float32 whatever their type in memory, so that a run may resume with another type.
// If a checkpoint lacks the eviction columns because the table had no cap, they are 0 for all rows.
//
// Parameter servers save these tensors in one file for each server, with rows in no order. Internal
// to this folder.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/collective/communicator.h"
#include "common/train/embedding/table_rows.h"
#include "common/train/replica/replica.h"

namespace muster {

// Gives every process of the generation the tables of `owner`, a replica that owns its process's
// tables. Constructed and run by all replicas. The constructor exchanges the tables' sizes. Throws
// StatusError.
class TableTransfer {
 public:
  // `holds`: this replica already has the owner's state, so its process's tables stay unchanged.
  TableTransfer(Replica* replica, Communicator* communicator, int owner, bool holds);
  // Returns whether this replica's process receives rows.
  bool moves() const { return moves_; }
  // Brings the tables to the state after `step`. `*whole` is false while rows arrive, and stays
  // false if the transfer is interrupted. Calls `moment` after each piece of rows; it may be null.
  void Run(int64_t step, bool* whole, const std::function<void()>& moment);

 private:
  Replica* const replica_;
  Communicator* const communicator_;
  const int owner_;
  bool moves_ = false, anybody_moves_ = false;
  std::vector<int64_t> sizes_, updates_, counted_;  // The owner's table sizes.
};

// Describes a replica's tables as tensors, and copies their bytes. Has no tensors if parameter
// servers hold the tables. The tables must not change while this object exists.
class TableSnapshot {
 public:
  explicit TableSnapshot(const Replica& replica);
  ~TableSnapshot();
  const std::vector<checkpoint::TensorInfo>& model() const { return model_; }
  const std::vector<checkpoint::TensorInfo>& optimizer() const { return optimizer_; }
  // Copies all bytes to these addresses, in parallel on this thread's intra-op threads.
  void CopyOut(std::span<char* const> model, std::span<char* const> optimizer) const;

 private:
  struct Rows;
  const Replica& replica_;
  std::vector<std::unique_ptr<Rows>> rows_;  // Indexed by table; sorted by key as int64.
  std::vector<checkpoint::TensorInfo> model_, optimizer_;
};

// Reads the replica's tables from a snapshot, which must outlive this object.
class TableRestore {
 public:
  // Reads slots too if `slots`. `refuse` turns a sentence about a mismatch into an error.
  static absl::StatusOr<TableRestore> Find(
      const checkpoint::Snapshot& snapshot, const Replica& replica, bool slots,
      const std::function<absl::Status(const std::string&)>& refuse);
  // Returns whether the tensor belongs to a table.
  bool Has(const checkpoint::Tensor& tensor) const;
  // Restores the rows. Without slots, slots get their initial values. `step`: see
  // LocalEmbeddings::set_step. Does nothing if parameter servers hold the tables.
  absl::Status Apply(int64_t step, Replica* replica) const;

 private:
  std::vector<TableRows> tables_;
  bool slots_ = false;
};

// Returns the sources of a snapshot's table rows: its table files, or else its tensors.
checkpoint::RowSources RowsOf(const checkpoint::Snapshot& snapshot);

}  // namespace muster
