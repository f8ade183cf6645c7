// Tests that freed memory contains no part of a key. This is a separate program, because it
// replaces operator delete by one that checks each block.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <string_view>

#include "common/security/identity.h"
#include "common/security/run_key.h"

namespace {

// The keys of these tests. They are literals, whose memory is never freed.
constexpr std::string_view kDigits =
    "5ac1e30977f2b84d9e16a3c85b0d72f4c6e8913ba57d20f4863bd1c70e95a24f";
constexpr std::string_view kOtherDigits =
    "a7300d5be91c4f826c8b1e93d4a57f20b2f61c0d7e8893a54b0fd2c6e1795a38";
constexpr std::string_view kRaw = "\x5a\xc1\xe3\x09\x77\xf2\xb8\x4d";
constexpr std::string_view kPem = "BEGIN PRIVATE KEY";

std::atomic<bool> looking = false;
std::atomic<int> found = 0;

bool Holds(std::string_view block, std::string_view what) {
  return std::search(block.begin(), block.end(), what.begin(), what.end()) != block.end();
}

void Free(void* block) noexcept {
  if (block != nullptr && looking) {
    const std::string_view bytes(static_cast<const char*>(block), malloc_usable_size(block));
    if (Holds(bytes, kDigits.substr(0, 12)) || Holds(bytes, kRaw) || Holds(bytes, kPem)) ++found;
  }
  std::free(block);
}

}  // namespace

void* operator new(size_t size) {
  if (void* block = std::malloc(size)) return block;
  throw std::bad_alloc();
}
void* operator new(size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void operator delete(void* block) noexcept { Free(block); }
void operator delete(void* block, size_t) noexcept { Free(block); }

namespace muster::security {
namespace {

class ResidueTest : public ::testing::Test {
 protected:
  ResidueTest() { EXPECT_NE(mkdtemp(folder_.data()), nullptr); }
  ~ResidueTest() override { std::filesystem::remove_all(folder_); }

  // Writes a file without a stream, because the test would find the stream's buffer.
  std::string Write(const char* name, std::initializer_list<std::string_view> parts) {
    std::string path = folder_ + "/" + name;
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (const std::string_view part : parts)
      EXPECT_EQ(write(file, part.data(), part.size()), static_cast<ssize_t>(part.size()));
    close(file);
    return path;
  }

  // Returns how many blocks that `body` frees contain a part of a key.
  template <typename Body>
  static int LeftBy(const Body& body) {
    found = 0;
    looking = true;
    body();
    looking = false;
    return found;
  }

  std::string folder_ = std::filesystem::temp_directory_path() / "muster-residue-XXXXXX";
};

TEST_F(ResidueTest, IsFoundWhereThereIsSome) {
  EXPECT_GT(LeftBy([] { std::string text(kDigits); }), 0);
  EXPECT_GT(LeftBy([] { std::string text("-----BEGIN PRIVATE KEY-----, and what is in it"); }), 0);
}

TEST_F(ResidueTest, NoneOfAKeyThatIsFormatted) {
  const auto keys = ParseRunKeys(std::string(kDigits), "the test");
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(LeftBy([&] { (void)FormatRunKey((*keys)[0]); }), 0);
}

TEST_F(ResidueTest, NoneOfRunKeysThatAreLookedAt) {
  const std::string path = Write("key", {kDigits, "\n", kOtherDigits, "\n"});
  EXPECT_EQ(LeftBy([&] {
              IdentityOptions options;
              options.self = {"0123456789abcdef", "worker:0"};
              options.run_key = path;
              const auto identity = Identity::Make(std::move(options));
              ASSERT_TRUE(identity.ok()) << identity.status();
              (*identity)->Refresh();
              Write("key", {kOtherDigits, "\n", kDigits, "\n"});
              (*identity)->Refresh();
            }),
            0);
}

TEST_F(ResidueTest, NoneOfCertificatesKeysThatAreLookedAt) {
  const auto authority = Authority::Random();
  const auto made = authority->Issue(UriOf({"0123456789abcdef", "worker:0"}), {"host1"});
  ASSERT_TRUE(made.ok()) << made.status();
  IdentityOptions options;
  options.self = {"0123456789abcdef", "worker:0"};
  options.files = {Write("a.pem", {made->certificate}), Write("a.key", {made->key}),
                   Write("authority.pem", {made->authorities})};
  options.hosts = {{"worker:0", "host1"}};
  EXPECT_EQ(LeftBy([&] {
              const auto identity = Identity::Make(options);
              ASSERT_TRUE(identity.ok()) << identity.status();
              (*identity)->Refresh();
            }),
            0);
}

}  // namespace
}  // namespace muster::security
