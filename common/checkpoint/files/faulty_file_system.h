// A file system for fault injection (common/base/faults/faults.h). While a disk-full fault lasts,
// every creation, write and sync fails with kResourceExhausted. The file system calls Faults::At
// with Phase::kSave before it creates a file of a checkpoint, and before it renames a checkpoint. A
// fault can kill the process at these points.
#pragma once

#include <memory>

#include "common/base/faults/faults.h"
#include "common/checkpoint/files/file_system.h"

namespace muster::checkpoint {

// `files` and `faults` must outlive the result.
std::unique_ptr<FileSystem> MakeFaultyFileSystem(FileSystem& files, Faults* faults);

}  // namespace muster::checkpoint
