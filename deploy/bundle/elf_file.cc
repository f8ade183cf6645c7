#include "deploy/bundle/elf_file.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gelf.h>
#include <libelf.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <climits>
#include <cstring>
#include <utility>

#include "common/base/files/created_files.h"
#include "common/base/files/fd.h"

namespace muster {
namespace {

// Parses the version of a symbol, such as "GLIBC_2.34". Returns {0, 0} for versions of other
// libraries.
GlibcVersion ParseGlibcVersion(std::string_view name) {
  // This version stands for packed relative relocations (DT_RELR). It has a name instead of a
  // number.
  if (name == "GLIBC_ABI_DT_RELR") return {2, 36};
  constexpr std::string_view kPrefix = "GLIBC_";
  if (!name.starts_with(kPrefix)) return {0, 0};
  name.remove_prefix(kPrefix.size());
  GlibcVersion version{0, 0};
  const char* end = name.data() + name.size();
  const auto [dot, error] = std::from_chars(name.data(), end, version.first);
  if (error != std::errc() || dot == end || *dot != '.') return {0, 0};
  std::from_chars(dot + 1, end, version.second);
  return version;
}

bool Overlaps(const FileRange& a, const FileRange& b) {
  return a.offset < b.offset + b.size && b.offset < a.offset + a.size;
}

struct EndElf {
  void operator()(Elf* elf) const { elf_end(elf); }
};

}  // namespace

// Reads the tables of a mapped file with libelf, which checks offsets and sizes.
class ElfFile::Reader {
 public:
  Reader(ElfFile* file, const std::string& path) : file_(file), path_(path) {}

  absl::Status Read() {
    elf_version(EV_CURRENT);
    elf_.reset(elf_memory(file_->map_.get(), file_->size_));
    if (elf_ == nullptr || elf_kind(elf_.get()) != ELF_K_ELF ||
        gelf_getehdr(elf_.get(), &header_) == nullptr || gelf_getclass(elf_.get()) != ELFCLASS64 ||
        header_.e_ident[EI_DATA] != ELFDATA2LSB)
      return ConfigurationError(
          fmt::format("{} is not a 64-bit program or shared library (ELF)", path_));
    file_->machine_ = header_.e_machine;
    MUSTER_RETURN_IF_ERROR(ReadTables());
    bool dynamic = false;
    Elf_Scn* section = nullptr;
    while ((section = elf_nextscn(elf_.get(), section)) != nullptr) {
      GElf_Shdr shape;
      if (gelf_getshdr(section, &shape) == nullptr) return Damaged();
      if (shape.sh_type == SHT_DYNAMIC) {
        if (std::exchange(dynamic, true))
          return ConfigurationError(
              fmt::format("{} is damaged: it has two dynamic sections", path_));
        MUSTER_RETURN_IF_ERROR(ReadDynamic(section, shape));
      } else if (shape.sh_type == SHT_GNU_verneed) {
        MUSTER_RETURN_IF_ERROR(ReadVersions(section, shape));
      } else {
        NoteDroppable(section, shape);
      }
    }
    if (!dynamic)
      return ConfigurationError(
          fmt::format("{} has no dynamic section: it is not a dynamically linked program or "
                      "library, or its section headers were removed",
                      path_));
    return absl::OkStatus();
  }

 private:
  absl::Status Damaged() const {
    return ConfigurationError(fmt::format("{} is damaged: {}", path_, elf_errmsg(-1)));
  }

  bool InFile(uint64_t offset, uint64_t size) const {
    return offset <= file_->size_ && size <= file_->size_ - offset;
  }

  absl::Status ReadTables() {
    size_t segments = 0, sections = 0;
    if (elf_getphdrnum(elf_.get(), &segments) != 0 || elf_getshdrnum(elf_.get(), &sections) != 0)
      return Damaged();
    file_->segments_ = {header_.e_phoff, segments * sizeof(Elf64_Phdr)};
    file_->sections_ = {header_.e_shoff, sections * sizeof(Elf64_Shdr)};
    if (!InFile(header_.e_phoff, file_->segments_.size) ||
        !InFile(header_.e_shoff, file_->sections_.size))
      return ConfigurationError(fmt::format("{} is damaged: it ends early", path_));
    used_ = {{0, sizeof(Elf64_Ehdr)}, file_->segments_, file_->sections_};
    for (size_t i = 0; i < segments; ++i) {
      GElf_Phdr segment;
      if (gelf_getphdr(elf_.get(), static_cast<int>(i), &segment) == nullptr) return Damaged();
      used_.push_back({segment.p_offset, segment.p_filesz});
    }
    return absl::OkStatus();
  }

  absl::Status ReadDynamic(Elf_Scn* section, const GElf_Shdr& shape) {
    Elf_Data* data = elf_getdata(section, nullptr);
    Elf_Scn* texts = elf_getscn(elf_.get(), shape.sh_link);
    GElf_Shdr texts_shape;
    if (data == nullptr || texts == nullptr || gelf_getshdr(texts, &texts_shape) == nullptr)
      return Damaged();
    if (!InFile(shape.sh_offset, shape.sh_size)) return Damaged();
    file_->dynamic_end_ = shape.sh_offset + shape.sh_size;
    GElf_Dyn entry;
    for (int i = 0; gelf_getdyn(data, i, &entry) != nullptr && entry.d_tag != DT_NULL; ++i) {
      if (entry.d_tag != DT_NEEDED && entry.d_tag != DT_RPATH && entry.d_tag != DT_RUNPATH)
        continue;
      const char* text = elf_strptr(elf_.get(), shape.sh_link, entry.d_un.d_val);
      if (text == nullptr) return Damaged();
      if (entry.d_tag == DT_NEEDED) {
        file_->needed_.push_back(text);
        continue;
      }
      const uint64_t at = shape.sh_offset + i * sizeof(Elf64_Dyn);
      const FileRange range{texts_shape.sh_offset + entry.d_un.d_val, std::strlen(text)};
      if (!InFile(range.offset, range.size + 1)) return Damaged();
      file_->search_entries_.push_back(at);
      // DT_RUNPATH replaces a DT_RPATH of the same file.
      if (file_->runpath_) continue;
      file_->runpath_ = entry.d_tag == DT_RUNPATH;
      file_->search_value_ = entry.d_un.d_val;
      file_->search_text_ = range;
    }
    return absl::OkStatus();
  }

  absl::Status ReadVersions(Elf_Scn* section, const GElf_Shdr& shape) {
    Elf_Data* data = elf_getdata(section, nullptr);
    if (data == nullptr) return Damaged();
    // Each entry of a list has the offset of the next one; 0 ends the list. The entry counts are
    // not used, because they may be wrong in a damaged file.
    const auto add = [](uint64_t* at, uint64_t next) {
      *at += next;
      return next != 0 && *at <= INT_MAX;
    };
    GElf_Verneed library;
    uint64_t at = 0;
    while (gelf_getverneed(data, static_cast<int>(at), &library) != nullptr) {
      GElf_Vernaux version;
      uint64_t version_at = at;
      bool more = add(&version_at, library.vn_aux);
      while (more && gelf_getvernaux(data, static_cast<int>(version_at), &version) != nullptr) {
        if (const char* name = elf_strptr(elf_.get(), shape.sh_link, version.vna_name))
          file_->glibc_ = std::max(file_->glibc_, ParseGlibcVersion(name));
        more = add(&version_at, version.vna_next);
      }
      if (!add(&at, library.vn_next)) break;
    }
    return absl::OkStatus();
  }

  void NoteDroppable(Elf_Scn* section, const GElf_Shdr& shape) {
    const char* text = elf_strptr(elf_.get(), header_.e_shstrndx, shape.sh_name);
    const std::string_view name = text == nullptr ? "" : text;
    const bool debug = shape.sh_type == SHT_PROGBITS && name.starts_with(".debug_");
    const bool symbols = shape.sh_type == SHT_SYMTAB || name == ".strtab";
    const FileRange range{shape.sh_offset, shape.sh_size};
    if ((!debug && !symbols) || (shape.sh_flags & SHF_ALLOC) != 0 ||
        elf_ndxscn(section) == header_.e_shstrndx || !InFile(range.offset, range.size))
      return;
    for (const FileRange& used : used_)
      if (Overlaps(used, range)) return;
    used_.push_back(range);
    file_->droppable_[elf_ndxscn(section)] = range;
  }

  ElfFile* file_;
  const std::string& path_;
  std::unique_ptr<Elf, EndElf> elf_;
  GElf_Ehdr header_;
  // Ranges that must stay: headers, segments and the droppable sections found so far.
  std::vector<FileRange> used_;
};

template <typename Entry, typename Change>
void ElfFile::ForEach(const FileRange& table, const Change& change) {
  for (uint64_t at = table.offset; at < table.offset + table.size; at += sizeof(Entry)) {
    // A table may be unaligned, so entries are copied.
    Entry entry;
    std::memcpy(&entry, map_.get() + at, sizeof(entry));
    change(entry);
    std::memcpy(map_.get() + at, &entry, sizeof(entry));
  }
}

void ElfFile::Unmap::operator()(char* map) const { munmap(map, size); }

absl::StatusOr<ElfFile> ElfFile::Read(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status;
  if (!fd || fstat(fd.get(), &status) != 0)
    return ConfigurationError(fmt::format("cannot read {}: {}", path, FileErrorText(errno)));
  if (!S_ISREG(status.st_mode) || status.st_size == 0)
    return ConfigurationError(fmt::format("{} is not a file with content", path));
  ElfFile file;
  file.size_ = status.st_size;
  // MAP_PRIVATE: changes do not reach the file.
  void* map = mmap(nullptr, file.size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd.get(), 0);
  if (map == MAP_FAILED)
    return ConfigurationError(fmt::format("cannot read {}: {}", path, FileErrorText(errno)));
  file.map_ = {static_cast<char*>(map), Unmap{file.size_}};
  MUSTER_RETURN_IF_ERROR(Reader(&file, path).Read());
  return file;
}

std::string ElfFile::search_path() const {
  return std::string(bytes().substr(search_text_.offset, search_text_.size));
}

bool ElfFile::SetSearchPath(std::string_view path) {
  if (path.size() > search_text_.size) return false;
  char* text = map_.get() + search_text_.offset;
  // Overwrite the whole path of the build folder.
  std::memset(text, 0, search_text_.size);
  std::memcpy(text, path.data(), path.size());
  search_text_.size = path.size();
  // A file with entries of both kinds then has two DT_RPATH entries. The loader uses the last one.
  const Elf64_Dyn entry = {DT_RPATH, {search_value_}};
  for (const uint64_t at : search_entries_) std::memcpy(map_.get() + at, &entry, sizeof(entry));
  runpath_ = false;
  return true;
}

void ElfFile::RemoveSearchPath() {
  // Move the later entries over each removed one, starting with the last. The section ends with
  // null entries.
  for (auto at = search_entries_.rbegin(); at != search_entries_.rend(); ++at) {
    char* entry = map_.get() + *at;
    std::memmove(entry, entry + sizeof(Elf64_Dyn), dynamic_end_ - *at - sizeof(Elf64_Dyn));
  }
  search_entries_.clear();
  search_text_ = {};
  runpath_ = false;
}

void ElfFile::DropSymbols() {
  std::vector<FileRange> ranges;
  const Elf64_Shdr unused{};
  for (const auto& [number, range] : droppable_) {
    std::memcpy(map_.get() + sections_.offset + number * sizeof(unused), &unused, sizeof(unused));
    std::memset(map_.get() + range.offset, 0, range.size);
    ranges.push_back(range);
  }
  droppable_.clear();
  // Cut the last range first, so that the offsets of the others stay valid.
  std::sort(ranges.begin(), ranges.end(),
            [](const FileRange& a, const FileRange& b) { return a.offset > b.offset; });
  for (const FileRange& range : ranges) Cut(range);
}

void ElfFile::Cut(const FileRange& range) {
  // The loader maps whole pages, so the offsets of segments may change only by whole pages.
  uint64_t page = 4096;
  ForEach<Elf64_Phdr>(segments_, [&](const Elf64_Phdr& segment) {
    if (segment.p_type == PT_LOAD && segment.p_offset >= range.offset)
      page = std::max<uint64_t>(page, segment.p_align);
  });
  const uint64_t size = range.size / page * page, end = range.offset + size;
  if (size == 0 || !std::has_single_bit(page)) return;
  std::memmove(map_.get() + range.offset, map_.get() + end, size_ - end);
  size_ -= size;
  const auto move = [&](uint64_t* offset) {
    if (*offset >= end) *offset -= size;
  };
  for (uint64_t* offset :
       {&segments_.offset, &sections_.offset, &search_text_.offset, &dynamic_end_})
    move(offset);
  for (uint64_t& entry : search_entries_) move(&entry);
  ForEach<Elf64_Ehdr>({0, sizeof(Elf64_Ehdr)}, [&](Elf64_Ehdr& header) {
    header.e_phoff = segments_.offset;
    header.e_shoff = sections_.offset;
  });
  ForEach<Elf64_Phdr>(segments_, [&](Elf64_Phdr& segment) { move(&segment.p_offset); });
  ForEach<Elf64_Shdr>(sections_, [&](Elf64_Shdr& section) { move(&section.sh_offset); });
}

}  // namespace muster
