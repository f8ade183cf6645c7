// Selects the files of a bundle and writes the bundle. A bundle is an archive for hosts where
// nothing is installed (docs/bundle.md). The content of a bundle is:
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
  // The folder with the programs of this Muster installation: `muster`, `muster-chief`, ...
  std::string bin_dir;
  // Paths of job programs (plugins).
  std::vector<std::string> programs;
  // If true, the bundle has the libraries for training on GPUs.
  bool cuda = false;
  LoaderFolders folders;
};

struct BundleEntry {
  // The path in the archive, relative to kBundleFolder.
  std::string name;
  // `path` is the file to copy. If `path` is empty, `text` is the content.
  std::string path, text;
  // The folders in which the dynamic loader searches for the libraries of this program or library,
  // separated by colons. "" for other files.
  std::string search_path;
};

struct Bundle {
  // Sorted by name.
  std::vector<BundleEntry> entries;
  // The oldest glibc that the bundle supports.
  GlibcVersion glibc{0, 0};
};

// Returns the entries of a bundle. Returns ConfigurationError if a program or library is missing or
// is not an ELF file.
absl::StatusOr<Bundle> PlanBundle(const BundleRequest& request);

// Writes the archive to `path`. Returns the size of the content in bytes, before compression.
// `compression` is as for ArchiveWriter::Open.
absl::StatusOr<uint64_t> WriteBundle(const Bundle& bundle, const std::string& path,
                                     int compression);

}  // namespace muster
