// Reads the dependencies of a dynamically linked ELF file (a program or library), and edits a copy
// of the file in memory for a bundle. The file on disk does not change. Not thread-safe.
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

// A version of glibc, such as {2, 36}.
using GlibcVersion = std::pair<int, int>;

class ElfFile {
 public:
  // Maps a 64-bit little-endian file. Returns ConfigurationError for other or damaged files.
  static absl::StatusOr<ElfFile> Read(const std::string& path);

  // Returns the architecture, a constant of <elf.h> such as EM_X86_64.
  int machine() const { return machine_; }
  // Returns the names of the libraries that the loader loads with this file (DT_NEEDED).
  const std::vector<std::string>& needed() const { return needed_; }
  // Returns the folders in which the loader searches for these libraries, separated by colons. The
  // source is DT_RUNPATH, or DT_RPATH if the file has no DT_RUNPATH. Returns "" if the file has
  // neither.
  std::string search_path() const;
  bool has_runpath() const { return runpath_; }
  // Returns the oldest version of glibc that has all glibc symbols of the file. Returns {0, 0} if
  // the file uses no glibc symbols.
  GlibcVersion glibc() const { return glibc_; }

  // Replaces the search path by the DT_RPATH `path`. The loader searches a DT_RPATH before
  // LD_LIBRARY_PATH. The loader also uses a DT_RPATH for the libraries that this file's libraries
  // need. The new path must fit into the place of the old path. If the file's search path is
  // shorter than `path`, or the file has no search path, changes nothing and returns false.
  bool SetSearchPath(std::string_view path);
  // Removes the search path.
  void RemoveSearchPath();
  // Removes debug information and the symbols that only debuggers read.
  void DropSymbols();

  // Returns the content of the file with all changes. The view is valid until the next change or
  // the end of this object.
  std::string_view bytes() const { return {map_.get(), size_}; }

 private:
  struct Unmap {
    size_t size;
    void operator()(char* map) const;
  };
  class Reader;

  // Removes the whole pages within an unused range of the file, and corrects the offsets of all
  // data behind the range.
  void Cut(const FileRange& range);
  template <typename Entry, typename Change>
  void ForEach(const FileRange& table, const Change& change);

  std::unique_ptr<char, Unmap> map_;
  size_t size_ = 0;
  int machine_ = 0;
  std::vector<std::string> needed_;
  bool runpath_ = false;
  // search_text_ is the range of the search path in the file. search_value_ is the path's offset in
  // the string table.
  FileRange search_text_;
  uint64_t search_value_ = 0;
  // The file offsets of the DT_RUNPATH and DT_RPATH entries in the dynamic section: none, one or
  // two.
  std::vector<uint64_t> search_entries_;
  uint64_t dynamic_end_ = 0;
  GlibcVersion glibc_{0, 0};
  // The ranges of the program header table and of the section header table.
  FileRange segments_, sections_;
  // The sections that DropSymbols removes, by their index in the section header table.
  std::map<size_t, FileRange> droppable_;
};

}  // namespace muster
