#include "deploy/hosts/archive.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "deploy/hosts/local_command.h"
#include "deploy/launcher/shell_word.h"

namespace muster::hosts {
namespace {

namespace fs = std::filesystem;
using launcher::ShellWord;

constexpr Duration kArchiveTimeout = std::chrono::hours(1);
constexpr char kFolders[] = "\"${XDG_CACHE_HOME:-$HOME/.cache}\"/muster/hosts";

absl::StatusOr<std::string> DigestOf(int fd, int64_t* bytes) {
  constexpr size_t kShown = 16;  // Bytes of the digest that are used.
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        EVP_MD_CTX_free);
  unsigned char digest[EVP_MAX_MD_SIZE];
  std::vector<char> part(1 << 20);
  bool ok = context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  *bytes = 0;
  while (ok) {
    const ssize_t size = pread(fd, part.data(), part.size(), *bytes);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) ok = false;
    if (size <= 0) break;
    ok = EVP_DigestUpdate(context.get(), part.data(), static_cast<size_t>(size)) == 1;
    *bytes += size;
  }
  if (!ok || EVP_DigestFinal_ex(context.get(), digest, nullptr) != 1)
    return ConfigurationError("cannot read back the archive of --copy");
  std::string text;
  for (size_t i = 0; i < kShown; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string Shell(const std::string& script) { return "exec sh -c " + ShellWord(script); }

}  // namespace

absl::StatusOr<std::string> PathWithin(const std::string& path, const std::string& current) {
  const fs::path absolute = (fs::path(current) / path).lexically_normal();
  fs::path relative = absolute.lexically_relative(fs::path(current).lexically_normal());
  if (!relative.has_filename()) relative = relative.parent_path();
  if (relative.empty() || *relative.begin() == "..") {
    return ConfigurationError(fmt::format(
        "--copy is {}, which is outside of the current folder: start muster launch in a folder "
        "that contains it",
        path));
  }
  return relative.string();
}

absl::StatusOr<TarArchive> MakeArchive(const std::vector<std::string>& paths,
                                       launcher::SignalQueue& signals) {
  std::error_code error;
  const std::string current = fs::current_path(error).string();
  std::string name = (fs::temp_directory_path(error) / "muster-copy-XXXXXX").string();
  const Fd made(mkostemp(name.data(), O_CLOEXEC));
  if (!made)
    return ConfigurationError(
        fmt::format("cannot make the archive of --copy {}: {}", name, std::strerror(errno)));
  // The archive must not depend on the order of names or on the owners of files.
  std::vector<std::string> arguments = {
      "tar",          "--sort=name", "--owner=0", "--group=0", "--numeric-owner",
      "--format=gnu", "-cf",         name,        "--"};
  absl::Status status;
  for (const std::string& path : paths) {
    const absl::StatusOr<std::string> relative = PathWithin(path, current);
    if (!relative.ok()) {
      status = relative.status();
      break;
    }
    arguments.push_back(*relative);
  }
  absl::StatusOr<CommandResult> result =
      status.ok() ? RunCommand(arguments, signals, kArchiveTimeout) : status;
  TarArchive archive;
  archive.file = Fd(open(name.c_str(), O_RDONLY | O_CLOEXEC));
  unlink(name.c_str());
  if (!result.ok()) return result.status();
  if (result->code != 0) {
    return ConfigurationError(
        fmt::format("--copy: {}", result->err.substr(0, result->err.find('\n'))));
  }
  archive.path = fmt::format("/proc/self/fd/{}", archive.file.get());
  MUSTER_ASSIGN_OR_RETURN(archive.digest, DigestOf(archive.file.get(), &archive.bytes));
  return archive;
}

std::string ContentFolder(const std::string& digest) {
  return fmt::format("{}/{}", kFolders, digest);
}

std::string NamedFolder(const std::string& folder) { return ShellWord(folder); }

std::string UnpackOnceCommand(const std::string& digest) {
  // One line without "!", which some login shells would interpret.
  constexpr std::string_view kContent =
      "content() {{ find . -mindepth 1 -not -path ./{0} -printf '%y %m %s %T@ %p %l\\n' | "
      "LC_ALL=C sort | cksum; }}; ";
  // Removes unused folders. Those with a suffix are of copies, or of removals, that were
  // interrupted. A folder gets a suffix before it is removed, so that no launch finds a part of it,
  // and is looked at again then: another launch may have begun to use it. The number of bytes in
  // the mark is 0 if `find` could not list them.
  constexpr std::string_view kSweep =
      "own() {{ test ${{#1}} = {3} && test -z \"$(printf %s \"$1\" | tr -d 0-9a-f)\"; }}; "
      "unused() {{ for p in /proc/[0-9]*/cwd /proc/[0-9]*/exe; do case $(readlink \"$p\")/ in "
      "\"$here/$1\"/*) return 1;; esac; done; }}; "
      "old() {{ test -n \"$(find \"$1/{0}\" -mtime +{2})\" && unused \"$1\"; }}; "
      "drop() {{ chmod -R u+rwX \"$1\"; rm -rf -- \"$1\"; }}; "
      "sweep() {{ cd \"$d\" && here=$(pwd -P) || return; for o in *; do "
      "test \"$o\" = {1} && continue; own \"${{o%.??????}}\" || continue; "
      "if test \"$o\" = \"${{o%.??????}}\"; then "
      "case $(cat \"$o/{0}\") in *\" 0\") continue;; esac; "
      "old \"$o\" && test \"$(cd \"$o\" && content)\" = \"$(cat \"$o/{0}\")\" && "
      "n=$(mktemp -u \"$o.XXXXXX\") && mv -T \"$o\" \"$n\" || continue; "
      "if old \"$n\"; then drop \"$n\"; else mv -T \"$n\" \"$o\"; fi; "
      "elif test -n \"$(find \"$o\" -maxdepth 0 -mtime +1)\" && unused \"$o\"; then drop \"$o\"; "
      "fi; done; }}; ";
  constexpr std::string_view kUnpack =
      "d={0}; f=\"$d\"/{1}; if test -d \"$f\"; then touch -c \"$f/{2}\"; else mkdir -p \"$d\" && "
      "n=$(mktemp -d \"$f.XXXXXX\") || exit 1; tar -x --no-same-owner -f - -C \"$n\" && "
      "(cd \"$n\" && content >{2}) && {{ mv -T \"$n\" \"$f\" 2>/dev/null || test -d \"$f\"; }}; "
      "c=$?; rm -rf \"$n\"; test $c = 0 || exit $c; fi; "
      "(sweep) >/dev/null 2>&1 </dev/null; exit 0";
  return Shell(fmt::format(kContent, kCopyMark) +
               fmt::format(kSweep, kCopyMark, digest, kCopyUnusedDays, digest.size()) +
               fmt::format(kUnpack, kFolders, digest, kCopyMark));
}

std::string UnpackOverCommand(const std::string& folder) {
  // Hosts that share the folder take turns, if its file system has locks: over NFS, a host cannot
  // write on to a file that another one has replaced.
  constexpr std::string_view kUnpack =
      "mkdir -p {0} && cd {0} || exit; lock=; "
      "flock {1} true 2>/dev/null </dev/null && lock=\"flock {1}\"; "
      "exec $lock tar -x --no-same-owner -f -";
  return Shell(fmt::format(kUnpack, NamedFolder(folder), kCopyLock));
}

}  // namespace muster::hosts
