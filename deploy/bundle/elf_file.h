// Reads the dependencies of an ELF file, and edits a copy of it in memory for a bundle. The file
// itself does not change. Not thread-safe.
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
  // Maps a 64-bit ELF file. Returns ConfigurationError for any other file.
  static absl::StatusOr<ElfFile> Read(const std::string& path);

  // Returns the architecture, a constant of <elf.h> such as EM_X86_64.
  int machine() const { return machine_; }
  // Returns the names of the libraries that the loader loads with this file (DT_NEEDED).
  const std::vector<std::string>& needed() const { return needed_; }
  // Returns the search path for these libraries, folders separated by colons: DT_RUNPATH, or
  // DT_RPATH if the file has no DT_RUNPATH. "" if it has neither.
  std::string search_path() const;
  bool has_runpath() const { return runpath_; }
  // Returns the oldest glibc that provides all symbols that the file needs, {0, 0} if it needs
  // none.
  GlibcVersion glibc() const { return glibc_; }

  // Replaces the search path by a DT_RPATH. The loader searches a DT_RPATH before LD_LIBRARY_PATH,
  // and also for the libraries that this file loads. Returns false, without a change, if the file's
  // search path is shorter than `path` or absent.
  bool SetSearchPath(std::string_view path);
  // Removes the search path.
  void RemoveSearchPath();
  // Removes debug information, and symbols that only debuggers read.
  void DropSymbols();

  // Returns the content with all changes. Valid as long as this object, until the next change.
  std::string_view bytes() const { return {map_.get(), size_}; }

 private:
  struct Unmap {
    size_t size;
    void operator()(char* map) const;
  };
  class Reader;

  // Removes the whole pages of an unused range, and corrects the offsets of all data behind it.
  void Cut(const FileRange& range);
  template <typename Entry, typename Change>
  void ForEach(const FileRange& table, const Change& change);

  std::unique_ptr<char, Unmap> map_;
  size_t size_ = 0;
  int machine_ = 0;
  std::vector<std::string> needed_;
  bool runpath_ = false;
  // The search path in the file, and its offset in the string table.
  FileRange search_text_;
  uint64_t search_value_ = 0;
  // File offsets of the search path's entries in the dynamic section: two if the file has both
  // kinds.
  std::vector<uint64_t> search_entries_;
  uint64_t dynamic_end_ = 0;
  GlibcVersion glibc_{0, 0};
  // The program header table and the section header table.
  FileRange segments_, sections_;
  // Sections that DropSymbols removes, by index.
  std::map<size_t, FileRange> droppable_;
};

}  // namespace muster
