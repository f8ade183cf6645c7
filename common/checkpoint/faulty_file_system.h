// A file system on which planned faults happen: the disk is full (every creation, append and sync
// fails with kResourceExhausted), and each file of a checkpoint, and its rename, is a moment of
// phase save at which this process may be killed.
#pragma once

#include <memory>

#include "common/base/faults.h"
#include "common/checkpoint/file_system.h"

namespace muster::checkpoint {

// Both outlive it.
std::unique_ptr<FileSystem> MakeFaultyFileSystem(FileSystem& files, Faults* faults);

}  // namespace muster::checkpoint
