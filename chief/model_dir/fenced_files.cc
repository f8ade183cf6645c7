#include "chief/model_dir/fenced_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string_view>

#include "common/base/files/created_files.h"

namespace muster::chief {
namespace {

constexpr std::string_view kPart = ".part";

absl::Status NotWritten(const std::string& path, int error) {
  const std::string text = fmt::format("cannot write {}: {}", path, FileErrorText(error));
  return error == ENOSPC || error == EDQUOT || error == EIO || error == ESTALE
             ? absl::UnavailableError(text)  // A restart may help.
             : ConfigurationError(text);
}

absl::Status WriteWhole(const std::string& path, const std::string& text) {
  const Fd file = CreateFile(path, O_WRONLY | O_TRUNC);
  const int fd = file.get();
  bool good = fd >= 0;
  for (size_t done = 0; good && done < text.size();) {
    const ssize_t written = write(fd, text.data() + done, text.size() - done);
    good = written >= 0 || errno == EINTR;
    if (written > 0) done += static_cast<size_t>(written);
  }
  good = good && fsync(fd) == 0;
  const int error = errno;
  if (good) return absl::OkStatus();
  return NotWritten(path, error);
}

// Returns the term in a temporary name "<file>.<term>.<pid>.part", nullopt for other names.
std::optional<uint32_t> TermOf(std::string_view name, std::string_view file) {
  if (!name.starts_with(file) || !name.ends_with(kPart)) return std::nullopt;
  name.remove_prefix(file.size());
  if (!name.starts_with('.')) return std::nullopt;
  name.remove_prefix(1);
  uint32_t term = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), term);
  if (error != std::errc() || *end != '.') return std::nullopt;
  return term;
}

}  // namespace

std::string FencedFiles::TemporaryPath(const std::string& path) const {
  return fmt::format("{}.{}.{}{}", path, term_, getpid(), kPart);
}

void FencedFiles::RemoveEarlierTemporaries(const std::string& path) const {
  const std::filesystem::path file(path);
  std::error_code error;
  for (std::filesystem::directory_iterator entry(file.parent_path(), error), end;
       !error && entry != end; entry.increment(error)) {
    const auto term = TermOf(entry->path().filename().native(), file.filename().native());
    std::error_code gone;
    if (term && *term < term_) std::filesystem::remove(entry->path(), gone);
  }
}

absl::Status FencedFiles::Write(const std::string& path, const Json& json) const {
  const std::string temporary = TemporaryPath(path);
  absl::Status status = WriteWhole(temporary, Dump(json, 2) + '\n');
  if (status.ok()) status = Check();
  if (status.ok()) {
    RemoveEarlierTemporaries(path);
    if (rename(temporary.c_str(), path.c_str()) != 0)
      status = errno == ENOENT ? Superseded(fmt::format("{}: another chief took model_dir", path))
                               : NotWritten(path, errno);
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

absl::Status FencedFiles::Remove(const std::string& path) const {
  MUSTER_RETURN_IF_ERROR(Check());
  RemoveEarlierTemporaries(path);
  // Moves the file aside first, so that a file that another chief has just written can be put back.
  const std::string aside = TemporaryPath(path);
  if (rename(path.c_str(), aside.c_str()) != 0)
    return errno == ENOENT ? absl::OkStatus() : NotWritten(path, errno);
  const absl::Status still = Check();
  if (!still.ok()) (void)!link(aside.c_str(), path.c_str());
  unlink(aside.c_str());
  return still;
}

}  // namespace muster::chief
