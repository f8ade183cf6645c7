// A file system for fault injection (common/base/faults). While a disk-full fault lasts, every
// creation, append and sync fails with kResourceExhausted. Each file of a checkpoint and each
// rename of a checkpoint is a call of Faults::At with phase save, so a fault may kill the process
// there.
#pragma once

#include <memory>

#include "common/base/faults/faults.h"
#include "common/checkpoint/files/file_system.h"

namespace muster::checkpoint {

// `files` and `faults` must outlive the result.
std::unique_ptr<FileSystem> MakeFaultyFileSystem(FileSystem& files, Faults* faults);

}  // namespace muster::checkpoint
