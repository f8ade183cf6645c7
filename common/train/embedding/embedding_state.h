// Sends embedding tables to other processes, saves them to checkpoints, and restores them. The
// replicas of a process (one for each device) share one set of tables. A checkpoint has the
// following tensors for each table, with rows sorted by key. table_rows.h reads them.
//
//   model      "<table>.keys"      int64 [n]
//              "<table>.rows"      float32 [n, width]
//   optimizer  "<table>.<slot>"    float32 [n, width], or [n, 1] for one number per row
//              "<table>.<column>"  int64 [n], for each eviction column
//              "<table>.step"      int64, the number of updates so far
//
// A slot is a value that the optimizer keeps for each row, such as a momentum. Saved rows are
// float32, even if rows have another type in memory. A run may therefore resume with another type.
// Eviction columns record when a row was created and updated, and how often it was updated. A table
// without a limit on its rows has no eviction columns. If a table has a limit and the checkpoint
// lacks these columns, a restore sets them to 0.
//
// With parameter servers, each server saves these tensors in a file of its own, with unsorted rows.
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

// Sends the tables of replica `owner` to every process that needs them. All replicas of a
// generation (a period of training with fixed members) construct this object and call Run. The
// constructor and Run communicate with all replicas. Both throw StatusError.
class TableTransfer {
 public:
  // `holds` is true if this replica already has the owner's state. Run then does not change the
  // tables of this process.
  TableTransfer(Replica* replica, collective::Communicator* communicator, int owner, bool holds);
  // Returns true if this replica's process receives rows.
  bool moves() const { return moves_; }
  // Sends the rows, and calls LocalEmbeddings::set_step with `step`. Sets `*whole` to false before
  // rows of this process change, and to true when all rows have arrived. Calls `moment` after each
  // broadcast of rows or of update counts (see TransferOptions::moment). `moment` may be null.
  void Run(int64_t step, bool* whole, const std::function<void()>& moment);

 private:
  Replica* const replica_;
  collective::Communicator* const communicator_;
  const int owner_;
  bool moves_ = false, anybody_moves_ = false;
  // The sizes of the owner's tables, indexed by table: the number of rows, the number of updates,
  // and the number of elements in the result of EmbeddingTable::Counted. For each key without a
  // row, this result has two elements: the key and its update count.
  std::vector<int64_t> sizes_, updates_, counted_;
};

// Describes a replica's tables as tensors of a checkpoint, and copies their bytes. Has no tensors
// if parameter servers hold the tables. REQUIRES: the tables do not change during the lifetime of
// this object.
class TableSnapshot {
 public:
  explicit TableSnapshot(const Replica& replica);
  ~TableSnapshot();
  const std::vector<checkpoint::TensorInfo>& model() const { return model_; }
  const std::vector<checkpoint::TensorInfo>& optimizer() const { return optimizer_; }
  // Copies the bytes of each tensor model()[i] to the address model[i], and the bytes of each
  // tensor optimizer()[i] to the address optimizer[i]. Uses LibTorch's intra-op threads.
  void CopyOut(std::span<char* const> model, std::span<char* const> optimizer) const;

 private:
  struct Rows;
  const Replica& replica_;
  // Indexed by table. Each element has the rows, sorted by key. Keys are compared as int64.
  std::vector<std::unique_ptr<Rows>> rows_;
  std::vector<checkpoint::TensorInfo> model_, optimizer_;
};

// Restores a replica's tables from a snapshot, the contents of a checkpoint. The snapshot must
// outlive this object.
class TableRestore {
 public:
  // Finds the tables in the snapshot, and their slots if `slots` is true. If a tensor is missing or
  // does not match the program, returns the error that `refuse` makes from a description.
  static absl::StatusOr<TableRestore> Find(
      const checkpoint::Snapshot& snapshot, const Replica& replica, bool slots,
      const std::function<absl::Status(const std::string&)>& refuse);
  // Returns true if `tensor` belongs to one of the tables.
  bool Has(const checkpoint::Tensor& tensor) const;
  // Restores the rows and slots. If `slots` was false in Find, slots get their initial values.
  // `step` is the step of the snapshot (LocalEmbeddings::set_step). Does nothing if parameter
  // servers hold the tables.
  absl::Status Apply(int64_t step, Replica* replica) const;

 private:
  std::vector<TableRows> tables_;
  bool slots_ = false;
};

// Returns the sources from which the snapshot's table rows are read. If the snapshot has files of
// table rows, the sources are these files. If not, they are the snapshot's tensors.
checkpoint::RowSources RowsOf(const checkpoint::Snapshot& snapshot);

}  // namespace muster
