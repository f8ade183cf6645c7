// Selects the files of a bundle and writes it:
//
//   muster/bin/           the programs
//   muster/lib/           their libraries, with LibTorch
//   muster/programs/      programs of jobs (plugins), from --program
//   muster/bundle.json    a description, for scripts
//   muster/doc/           the bill of materials and the licenses
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/bundle/elf_file.h"
#include "deploy/bundle/libraries.h"
#include "muster/status.h"

namespace muster {

// The top folder of the archive.
inline constexpr char kBundleFolder[] = "muster";

struct BundleRequest {
  // The folder of this Muster's programs.
  std::string bin_dir;
  // Paths of job programs (plugins).
  std::vector<std::string> programs;
  // Adds the libraries for training on GPUs.
  bool cuda = false;
  LoaderFolders folders;
};

struct BundleEntry {
  // Relative to kBundleFolder.
  std::string name;
  // Either the path of the file to copy, or its content.
  std::string path, text;
  // The search path of a program or library, for the loader. "" for other files.
  std::string search_path;
};

struct Bundle {
  // Sorted by name.
  std::vector<BundleEntry> entries;
  // The oldest glibc that the bundle supports.
  GlibcVersion glibc{0, 0};
};

// Returns the entries of a bundle. Returns ConfigurationError if a file is missing or is not a
// program or library.
absl::StatusOr<Bundle> PlanBundle(const BundleRequest& request);

// Writes the archive. Returns the size of its content in bytes. `compression` is that of
// ArchiveWriter::Open.
absl::StatusOr<uint64_t> WriteBundle(const Bundle& bundle, const std::string& path,
                                     int compression);

}  // namespace muster
