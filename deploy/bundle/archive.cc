#include "deploy/bundle/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "common/base/files/created_files.h"
#include "common/base/files/fd.h"

namespace muster {
namespace {

// 1980-01-01, the oldest time that all archivers support.
constexpr int64_t kFixedTime = 315'532'800;

struct EndEntry {
  void operator()(archive_entry* entry) const { archive_entry_free(entry); }
};
using Entry = std::unique_ptr<archive_entry, EndEntry>;

Entry MakeEntry(const std::string& name, mode_t type, mode_t permissions, uint64_t size) {
  Entry entry(archive_entry_new());
  archive_entry_set_pathname(entry.get(), name.c_str());
  archive_entry_set_filetype(entry.get(), type);
  archive_entry_set_perm(entry.get(), permissions);
  archive_entry_set_size(entry.get(), static_cast<int64_t>(size));
  archive_entry_set_mtime(entry.get(), kFixedTime, 0);
  archive_entry_set_uid(entry.get(), 0);
  archive_entry_set_gid(entry.get(), 0);
  return entry;
}

}  // namespace

struct ArchiveWriter::State {
  std::string path, part;
  Fd fd;
  archive* writer = nullptr;
  std::set<std::string> folders;

  absl::Status Problem() const {
    return ConfigurationError(
        fmt::format("cannot write {}: {}", path, FileErrorText(archive_errno(writer))));
  }
  absl::Status AddFolders(const std::string& name);
};

void ArchiveWriter::Abandon::operator()(State* state) const {
  archive_write_free(state->writer);
  if (!state->part.empty()) unlink(state->part.c_str());
  delete state;
}

absl::StatusOr<ArchiveWriter> ArchiveWriter::Open(const std::string& path, int compression) {
  const bool zstd = path.ends_with(kArchiveEndings[0]);
  if (!zstd && !path.ends_with(kArchiveEndings[1]))
    return ConfigurationError(fmt::format("the name of a bundle ends with {}: \"{}\" does not",
                                          fmt::join(kArchiveEndings, " or "), path));
  ArchiveWriter writer;
  writer.state_.reset(new State);
  State& state = *writer.state_;
  state.path = path;
  state.fd = CreateFile(path + ".part", O_WRONLY | O_TRUNC);
  if (!state.fd)
    return ConfigurationError(fmt::format("cannot write {}: {}", path, FileErrorText(errno)));
  state.part = path + ".part";
  state.writer = archive_write_new();
  const char* filter = zstd ? "zstd" : "gzip";
  const std::string level = std::to_string(zstd ? compression : std::min(compression, 9));
  if (archive_write_set_format_pax_restricted(state.writer) != ARCHIVE_OK ||
      archive_write_add_filter_by_name(state.writer, filter) != ARCHIVE_OK ||
      archive_write_set_filter_option(state.writer, filter, "compression-level", level.c_str()) !=
          ARCHIVE_OK ||
      // Omits the current time from the gzip header.
      (!zstd &&
       archive_write_set_filter_option(state.writer, filter, "timestamp", nullptr) != ARCHIVE_OK) ||
      archive_write_open_fd(state.writer, state.fd.get()) != ARCHIVE_OK)
    return state.Problem();
  return writer;
}

// Adds the parent folders of `name` that the archive does not contain yet.
absl::Status ArchiveWriter::State::AddFolders(const std::string& name) {
  for (size_t slash = name.find('/'); slash != std::string::npos;
       slash = name.find('/', slash + 1)) {
    const std::string folder = name.substr(0, slash);
    if (!folders.insert(folder).second) continue;
    const Entry entry = MakeEntry(folder + "/", AE_IFDIR, 0755, 0);
    if (archive_write_header(writer, entry.get()) != ARCHIVE_OK) return Problem();
  }
  return absl::OkStatus();
}

absl::Status ArchiveWriter::Add(const std::string& name, std::string_view content,
                                bool executable) {
  MUSTER_RETURN_IF_ERROR(state_->AddFolders(name));
  const Entry entry = MakeEntry(name, AE_IFREG, executable ? 0755 : 0644, content.size());
  if (archive_write_header(state_->writer, entry.get()) != ARCHIVE_OK) return state_->Problem();
  while (!content.empty()) {
    const la_ssize_t written = archive_write_data(state_->writer, content.data(), content.size());
    if (written <= 0) return state_->Problem();
    content.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status ArchiveWriter::Finish() {
  if (archive_write_close(state_->writer) != ARCHIVE_OK) return state_->Problem();
  if (fsync(state_->fd.get()) != 0 || rename(state_->part.c_str(), state_->path.c_str()) != 0)
    return ConfigurationError(
        fmt::format("cannot write {}: {}", state_->path, FileErrorText(errno)));
  state_->part.clear();
  return absl::OkStatus();
}

}  // namespace muster
