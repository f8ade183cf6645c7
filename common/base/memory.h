// How much memory this process may still use.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

// Bytes that the host has left, or the tightest of the cgroups (version 1 or 2) that this process
// is in, whichever is less; memory that only caches files counts as left. Reads /proc and
// /sys/fs/cgroup under `root`; what cannot be read limits nothing.
uint64_t AvailableMemory(const std::string& root = "");

}  // namespace muster
