#include "common/security/run_key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <string_view>

namespace muster::security {
namespace {

constexpr size_t kDigits = 2 * kRunKeyBytes;
constexpr size_t kLongestFile = 1024;
constexpr char kForm[] =
    "a run key is a line of 64 hexadecimal digits (`muster key new` writes one)";

int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<Secret> DecodeHex(std::string_view line) {
  Secret key(kRunKeyBytes);
  for (size_t i = 0; i < kRunKeyBytes; ++i) {
    const int high = Digit(line[2 * i]), low = Digit(line[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    key.data()[i] = static_cast<unsigned char>(16 * high + low);
  }
  return key;
}

std::string_view Trim(std::string_view line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  return line;
}

absl::StatusOr<RunKeys> ReadFrom(int descriptor, const std::string& origin) {
  Secret text(kLongestFile + 1);
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = pread(descriptor, text.data() + size, text.size() - size, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return ConfigurationError(fmt::format("cannot read {}: {}", origin, strerror(errno)));
    if (n == 0) break;
    size += n;
  }
  if (size > kLongestFile)
    return ConfigurationError(fmt::format("{} is too long: {}", origin, kForm));
  return ParseRunKeys(text.text().substr(0, size), origin);
}

}  // namespace

// Maps separate pages, because only whole pages can be excluded from core dumps.
Secret::Secret(size_t size) : size_(size) {
  void* page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::bad_alloc();
  madvise(page, size, MADV_DONTDUMP);
  data_ = static_cast<unsigned char*>(page);
}
Secret::~Secret() {
  if (data_ == nullptr) return;
  OPENSSL_cleanse(data_, size_);
  munmap(data_, size_);
}
Secret::Secret(Secret&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Secret Secret::Random(size_t size) {
  Secret secret(size);
  if (RAND_priv_bytes(secret.data(), static_cast<int>(size)) != 1) std::abort();
  return secret;
}

absl::StatusOr<RunKeys> ParseRunKeys(std::string_view text, const std::string& origin) {
  RunKeys keys;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = Trim(rest.substr(0, end));
    rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
    if (line.empty()) continue;
    if (line.size() != kDigits)
      return ConfigurationError(
          fmt::format("{} holds a line of {} characters: {}", origin, line.size(), kForm));
    std::optional<Secret> key = DecodeHex(line);
    if (!key)
      return ConfigurationError(fmt::format("{} holds other characters: {}", origin, kForm));
    if (keys.size() == 2)
      return ConfigurationError(
          fmt::format("{} holds more than two keys: keep the new one and the one before", origin));
    keys.push_back(*std::move(key));
  }
  if (keys.empty()) return ConfigurationError(fmt::format("{} is empty: {}", origin, kForm));
  return keys;
}

Secret FormatRunKey(const Secret& key) {
  constexpr char kHex[] = "0123456789abcdef";
  Secret line(2 * key.size() + 1);
  for (size_t i = 0; i < key.size(); ++i) {
    line.data()[2 * i] = kHex[key.data()[i] >> 4];
    line.data()[2 * i + 1] = kHex[key.data()[i] & 15];
  }
  line.data()[2 * key.size()] = '\n';
  return line;
}

std::string ReadingToken(const Secret& key) {
  constexpr std::string_view kPurpose = "status";
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(kPurpose.data()), kPurpose.size(), digest, &size);
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

absl::StatusOr<RunKeys> ReadRunKeys(const std::string& path) {
  const std::string origin = fmt::format("the run key {}", path);
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return ConfigurationError(fmt::format("cannot read {}: {}", origin, strerror(errno)));
  struct stat about {};
  if (fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode))
    return ConfigurationError(fmt::format("{} is no file", origin));
  if ((about.st_mode & S_IRWXO) != 0)
    return ConfigurationError(
        fmt::format("{} is open to all users of this host: `chmod 600 {}`, and make a new one if a "
                    "stranger may "
                    "have read it",
                    origin, path));
  return ReadFrom(file.get(), origin);
}

absl::StatusOr<RunKeys> ReadRunKeys(int descriptor) {
  return ReadFrom(descriptor, "the run key that the launcher passed on");
}

std::string DefaultRunKeyPath() {
  if (const char* config = std::getenv("XDG_CONFIG_HOME"); config != nullptr && *config == '/')
    return fmt::format("{}/muster/run.key", config);
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return "";
  return fmt::format("{}/.config/muster/run.key", home);
}

std::string RunKeyPath(const std::string& configured) {
  if (!configured.empty()) return configured;
  if (const char* named = std::getenv("MUSTER_RUN_KEY_FILE"); named != nullptr && *named != '\0')
    return named;
  const std::string path = DefaultRunKeyPath();
  return !path.empty() && access(path.c_str(), F_OK) == 0 ? path : "";
}

std::optional<int> TakeRunKeyDescriptor() {
  const char* text = std::getenv(kRunKeyDescriptor);
  if (text == nullptr) return std::nullopt;
  const std::string_view number = text;
  int descriptor = -1;
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), descriptor);
  const bool whole = error == std::errc() && end == number.data() + number.size();
  unsetenv(kRunKeyDescriptor);
  if (!whole || descriptor < 0) return std::nullopt;
  return descriptor;
}

absl::StatusOr<Fd> RunKeyToInherit(std::string_view text) {
  const Fd made(memfd_create("muster run key", MFD_CLOEXEC));
  if (made && write(made.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) {
    // F_DUPFD clears FD_CLOEXEC.
    Fd inherited(fcntl(made.get(), F_DUPFD, kMinInheritedDescriptor));
    if (inherited) return inherited;
  }
  return ConfigurationError(fmt::format("cannot hold the run key in memory: {}", strerror(errno)));
}

absl::Status WriteNewFile(const std::string& path, std::string_view text, mode_t mode) {
  const Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file && errno == EEXIST)
    return ConfigurationError(
        fmt::format("{} exists: use it, move it away, or name another file", path));
  if (!file) return ConfigurationError(fmt::format("cannot write {}: {}", path, strerror(errno)));
  if (write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      fsync(file.get()) == 0)
    return absl::OkStatus();
  const int why = errno;
  unlink(path.c_str());
  return ConfigurationError(fmt::format("cannot write {}: {}", path, strerror(why)));
}

absl::Status WriteNewRunKey(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  return WriteNewFile(path, FormatRunKey(Secret::Random(kRunKeyBytes)).text(), 0600);
}

}  // namespace muster::security
