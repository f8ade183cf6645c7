#include "common/checkpoint/files/file_system.h"

namespace muster::checkpoint {
namespace {

std::string_view WithoutTrailingSlashes(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

}  // namespace

std::string JoinPath(std::string_view directory, std::string_view name) {
  std::string path(WithoutTrailingSlashes(directory));
  if (!path.ends_with('/')) path += '/';
  return path.append(name);
}

std::string BaseName(std::string_view path) {
  path = WithoutTrailingSlashes(path);
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

std::string ParentPath(std::string_view path) {
  path = WithoutTrailingSlashes(path);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(WithoutTrailingSlashes(path.substr(0, slash + 1)));
}

absl::StatusOr<std::string> ReadFile(FileSystem& files, const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, files.Open(path));
  std::string bytes(file->size(), '\0');
  MUSTER_RETURN_IF_ERROR(file->ReadAt(0, bytes.size(), bytes.data()));
  return bytes;
}

absl::Status MakeDirectories(FileSystem& files, const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const bool exists, files.Exists(path));
  // Returns an error if `path` is not a directory.
  if (exists) return files.MakeDirectory(path);
  const std::string parent = ParentPath(path);
  if (parent != path) MUSTER_RETURN_IF_ERROR(MakeDirectories(files, parent));
  MUSTER_RETURN_IF_ERROR(files.MakeDirectory(path));
  return files.SyncDirectory(parent);
}

}  // namespace muster::checkpoint
