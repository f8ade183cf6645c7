#include "common/train/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "common/base/files/fd.h"

namespace muster {
namespace {

constexpr size_t kLongestStamp = 1024;
constexpr char kFactory[] = "muster_make_program";
#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
#error "Name this processor's ELF machine."
#endif

absl::Status Refused(const std::string& path, std::string_view why) {
  return ConfigurationError(fmt::format("program '{}' {}", path, why));
}

// Reads sections of an ELF file by name. Checks all numbers in the file before use.
class ElfFile {
 public:
  static absl::StatusOr<ElfFile> Open(const std::string& path) {
    ElfFile file(path);
    MUSTER_RETURN_IF_ERROR(file.ReadHeaders());
    return file;
  }

  // Returns the bytes of the section. Returns NotFound if the file does not have it.
  absl::StatusOr<std::string> Section(std::string_view name) const {
    for (const Elf64_Shdr& section : sections_) {
      if (NameOf(section) != name) continue;
      if (section.sh_type == SHT_NOBITS || section.sh_size > kLongestStamp) return Damaged();
      std::string bytes(section.sh_size, '\0');
      if (!Read(section.sh_offset, bytes.data(), bytes.size())) return Damaged();
      return bytes;
    }
    return absl::NotFoundError("");
  }

 private:
  explicit ElfFile(const std::string& path)
      : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}

  absl::Status ReadHeaders() {
    struct stat info {};
    if (!fd_ || fstat(fd_.get(), &info) != 0)
      return Refused(path_, fmt::format("cannot be read: {}", std::strerror(errno)));
    if (!S_ISREG(info.st_mode)) return Refused(path_, "is no file");
    size_ = static_cast<uint64_t>(info.st_size);
    Elf64_Ehdr header;
    if (!Read(0, &header, sizeof(header)) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
      return Refused(path_, "is no shared library: build it with muster_add_program");
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
        header.e_machine != kMachine)
      return Refused(path_, "was built for another kind of processor: build it on this one");
    if (header.e_type != ET_DYN || header.e_shentsize != sizeof(Elf64_Shdr) ||
        header.e_shstrndx >= header.e_shnum)
      return Refused(path_,
                     "is no shared library that can be loaded: link it with "
                     "muster_add_program");
    sections_.resize(header.e_shnum);
    if (!Read(header.e_shoff, sections_.data(), sections_.size() * sizeof(Elf64_Shdr)))
      return Damaged();
    const Elf64_Shdr& names = sections_[header.e_shstrndx];
    if (names.sh_size > size_) return Damaged();
    names_.resize(names.sh_size);
    return Read(names.sh_offset, names_.data(), names_.size()) ? absl::OkStatus() : Damaged();
  }

  std::string_view NameOf(const Elf64_Shdr& section) const {
    if (section.sh_name >= names_.size()) return {};
    const std::string_view rest = std::string_view(names_).substr(section.sh_name);
    return rest.substr(0, rest.find('\0'));
  }

  bool Read(uint64_t offset, void* to, size_t size) const {
    if (offset > size_ || size > size_ - offset) return false;
    auto* bytes = static_cast<char*>(to);
    while (size > 0) {
      const ssize_t got = pread(fd_.get(), bytes, size, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      bytes += got;
      offset += static_cast<uint64_t>(got);
      size -= static_cast<size_t>(got);
    }
    return true;
  }

  absl::Status Damaged() const {
    return Refused(path_,
                   "is damaged, perhaps cut off while it was copied: copy or build it again");
  }

  std::string path_;
  Fd fd_;
  uint64_t size_ = 0;
  std::vector<Elf64_Shdr> sections_;
  std::string names_;
};

// Returns the stamp of the plugin `path`. MUSTER_PROGRAM stores a stamp in the plugin: a text with
// the versions of Muster, LibTorch and the C++ ABI with which the plugin was built. Reads the file
// without running its code. Returns a ConfigurationError in three cases: the file is missing or
// damaged, it is not a shared library for this machine, or it does not contain exactly one program.
absl::StatusOr<std::string> ReadStamp(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const ElfFile file, ElfFile::Open(path));
  const absl::StatusOr<std::string> section = file.Section(MUSTER_STAMP_SECTION);
  if (absl::IsNotFound(section.status())) {
    return Refused(path,
                   "holds no program: write MUSTER_PROGRAM(Class) in one of its source files");
  }
  if (!section.ok()) return section.status();
  // A file with two programs has two stamps, one after the other.
  const std::string stamp = section->substr(0, section->find('\0'));
  if (section->size() > stamp.size() + 1) {
    return Refused(path, "holds several programs: write MUSTER_PROGRAM(Class) once");
  }
  return stamp;
}

}  // namespace

absl::StatusOr<ProgramFactory> LoadPlugin(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const std::string stamp, ReadStamp(path));
  if (stamp != MUSTER_STAMP) {
    return Refused(path, fmt::format("was built for \"{}\", and this is \"{}\": build it again "
                                     "with this Muster's package",
                                     stamp, MUSTER_STAMP));
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Refused(path, fmt::format("cannot be loaded: {}", dlerror()));
  auto* make = reinterpret_cast<Program* (*)()>(dlsym(library, kFactory));
  if (make == nullptr) {
    return Refused(path, fmt::format("lacks the function {}, which MUSTER_PROGRAM(Class) makes: "
                                     "do not hide it in linking",
                                     kFactory));
  }
  return ProgramFactory([make] { return std::unique_ptr<Program>(make()); });
}

}  // namespace muster
