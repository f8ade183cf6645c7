// What a bundle consists of:
//
//   muster/bin/           the programs
//   muster/lib/           their libraries, LibTorch among them
//   muster/programs/      programs of jobs (plugins), as --program names them
//   muster/bundle.json    what it is, for scripts
//   muster/doc/           what it is made of, and licenses
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/bundle/elf_file.h"
#include "deploy/bundle/libraries.h"
#include "muster/status.h"

namespace muster {

// The folder that an archive unpacks to.
inline constexpr char kBundleFolder[] = "muster";

struct BundleRequest {
  // Where this Muster's programs are.
  std::string bin_dir;
  // Files of jobs' programs.
  std::vector<std::string> programs;
  // With what training on GPUs needs.
  bool cuda = false;
  LoaderFolders folders;
};

struct BundleEntry {
  // Below the folder of the bundle.
  std::string name;
  // The file, or with `text` what stands in its place.
  std::string path, text;
  // Where the loader looks for the libraries of this program or library. "": not one of them.
  std::string search_path;
};

struct Bundle {
  // In order of name.
  std::vector<BundleEntry> entries;
  // The oldest glibc that the bundle runs with.
  GlibcVersion glibc{0, 0};
};

// Lists what belongs to a bundle. ConfigurationError if something is missing or is not what its
// place needs.
absl::StatusOr<Bundle> PlanBundle(const BundleRequest& request);

// Writes the archive. Returns the size of its content.
absl::StatusOr<uint64_t> WriteBundle(const Bundle& bundle, const std::string& path,
                                     int compression);

}  // namespace muster
