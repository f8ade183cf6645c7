// Transfers a process's embedding tables to new members, saves them to checkpoints, and restores
// them. A checkpoint has these tensors for each table (table_rows.h), sorted by key:
//
//   model      "<table>.keys" int64 [n], "<table>.rows" float32 [n, width]
//   optimizer  "<table>.<slot>" float32 [n, width], or [n, 1] if the rule has one number per row;
//              the eviction columns as "<table>.<column>" int64 [n]; and "<table>.step" int64: the
//              number of updates so far
//
// Saved rows are float32 for any type in memory, so a run may resume with another type. A table
// without a limit of rows has no eviction columns. If they are missing on restore, they become 0
// for all rows.
//
// Each parameter server saves these tensors in a file of its own, with unsorted rows.
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

// Sends the tables of replica `owner` to every process of the generation that needs them. All
// replicas construct the object and call Run. Both are collective: the constructor exchanges the
// tables' sizes. They throw StatusError.
class TableTransfer {
 public:
  // `holds` is true if this replica already has the owner's state. The tables of its process then
  // stay unchanged.
  TableTransfer(Replica* replica, collective::Communicator* communicator, int owner, bool holds);
  // Returns true if this replica's process receives rows.
  bool moves() const { return moves_; }
  // Transfers the rows, and sets the tables' last step to `step`. `*whole` is false while rows
  // arrive, and stays false if the transfer is interrupted. Calls `moment` after each piece of
  // rows. `moment` may be null.
  void Run(int64_t step, bool* whole, const std::function<void()>& moment);

 private:
  Replica* const replica_;
  collective::Communicator* const communicator_;
  const int owner_;
  bool moves_ = false, anybody_moves_ = false;
  std::vector<int64_t> sizes_, updates_, counted_;  // The owner's table sizes.
};

// A view of a replica's tables as the tensors of a checkpoint, whose bytes it copies. There are no
// tensors if parameter servers hold the tables. REQUIRES: the tables do not change while this
// object exists.
class TableSnapshot {
 public:
  explicit TableSnapshot(const Replica& replica);
  ~TableSnapshot();
  const std::vector<checkpoint::TensorInfo>& model() const { return model_; }
  const std::vector<checkpoint::TensorInfo>& optimizer() const { return optimizer_; }
  // Copies the bytes of each tensor to the address with the same index. Uses the intra-op threads
  // of the calling thread.
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
  // Finds the tables in the snapshot, and their slots if `slots` is true. If a tensor is missing or
  // does not match, returns the error that `refuse` makes from a description.
  static absl::StatusOr<TableRestore> Find(
      const checkpoint::Snapshot& snapshot, const Replica& replica, bool slots,
      const std::function<absl::Status(const std::string&)>& refuse);
  // Returns true if the tensor belongs to a table.
  bool Has(const checkpoint::Tensor& tensor) const;
  // Restores the rows and slots. If Find was called without slots, slots get their initial values.
  // `step` is passed to LocalEmbeddings::set_step. Does nothing if parameter servers hold the
  // tables.
  absl::Status Apply(int64_t step, Replica* replica) const;

 private:
  std::vector<TableRows> tables_;
  bool slots_ = false;
};

// Returns the sources of a snapshot's table rows: its files of tables if it has any, otherwise its
// tensors.
checkpoint::RowSources RowsOf(const checkpoint::Snapshot& snapshot);

}  // namespace muster
