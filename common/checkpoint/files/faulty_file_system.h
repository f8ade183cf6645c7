// A file system that injects planned faults. With a full disk, every creation, append and sync
// fails with kResourceExhausted. Each file of a checkpoint, and its rename, is a point of phase
// save at which the plan may kill this process.
#pragma once

#include <memory>

#include "common/base/faults/faults.h"
#include "common/checkpoint/files/file_system.h"

namespace muster::checkpoint {

// `files` and `faults` must outlive the result.
std::unique_ptr<FileSystem> MakeFaultyFileSystem(FileSystem& files, Faults* faults);

}  // namespace muster::checkpoint
