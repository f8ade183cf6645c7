// An ELF file that goes into a bundle: what it needs, and where it looks for libraries. Changes are
// made to a copy in memory, never to the file. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/status.h"

namespace muster {

// A range of bytes of a file.
struct FileRange {
  uint64_t offset = 0, size = 0;
};

// A version of glibc, {2, 36}.
using GlibcVersion = std::pair<int, int>;

class ElfFile {
 public:
  // Maps a 64-bit ELF file. ConfigurationError for any other file.
  static absl::StatusOr<ElfFile> Read(const std::string& path);

  // The architecture, as in <elf.h>: EM_X86_64.
  int machine() const { return machine_; }
  // Names of the libraries that the loader loads with this file (DT_NEEDED).
  const std::vector<std::string>& needed() const { return needed_; }
  // Folders in which the loader looks for them, separated by colons: DT_RPATH, or DT_RUNPATH, which
  // replaces it. "" without.
  std::string search_path() const;
  bool has_runpath() const { return runpath_; }
  // The oldest glibc that has all symbols which the file needs; {0, 0} if it needs none.
  GlibcVersion glibc() const { return glibc_; }

  // Replaces the search path by a DT_RPATH, which also counts for the libraries that this file
  // loads, and precedes LD_LIBRARY_PATH. False, without a change, if the file has no search path or
  // only a shorter one.
  bool SetSearchPath(std::string_view path);
  // Removes the search path.
  void RemoveSearchPath();
  // Removes debug information and symbols that only debuggers read.
  void DropSymbols();

  // The content, with all changes.
  std::string_view bytes() const { return {map_.get(), size_}; }

 private:
  struct Unmap {
    size_t size;
    void operator()(char* map) const;
  };
  class Reader;

  // Removes a range that nothing uses, in whole pages, and corrects what lies behind it.
  void Cut(const FileRange& range);
  template <typename Entry, typename Change>
  void ForEach(const FileRange& table, const Change& change);

  std::unique_ptr<char, Unmap> map_;
  size_t size_ = 0;
  int machine_ = 0;
  std::vector<std::string> needed_;
  bool runpath_ = false;
  // The text of the search path, and its place in the table of texts.
  FileRange search_text_;
  uint64_t search_value_ = 0;
  // Entries of the dynamic section: two where a file has both kinds.
  std::vector<uint64_t> search_entries_;
  uint64_t dynamic_end_ = 0;
  GlibcVersion glibc_{0, 0};
  // The tables of segments and of sections.
  FileRange segments_, sections_;
  // Sections that no program needs, by number.
  std::map<size_t, FileRange> droppable_;
};

}  // namespace muster
