#include "deploy/bundle/libraries.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "deploy/bundle/elf_file.h"
#include "tests/unit/bundle/test_folder.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Key;
using testing::Not;
using testing::Pair;
using testing::StartsWith;

TEST(LoaderFolders, ReadsTheLoadersConfiguration) {
  const TestFolder folder;
  folder.Write("ld.so.conf.d/b.conf", "# a comment\n/opt/b/lib\n\n");
  folder.Write("ld.so.conf.d/a.conf", "/opt/a/lib  # and another\n/opt/a/lib64\n");
  folder.Write("ld.so.conf.d/ignored", "/opt/ignored\n");
  const std::string conf =
      folder.Write("ld.so.conf", "include ld.so.conf.d/*.conf\n/opt/c/lib\ninclude none/*\n");
  const LoaderFolders found = ReadLoaderFolders("/first::/second", conf);
  EXPECT_THAT(found.first, ElementsAre("/first", "/second"));
  EXPECT_THAT(found.system, ElementsAre("/opt/a/lib", "/opt/a/lib64", "/opt/b/lib", "/opt/c/lib",
                                        "/lib64", "/usr/lib64", "/lib", "/usr/lib"));
  EXPECT_THAT(ReadLoaderFolders(nullptr, folder.Path("none")).first, ElementsAre());
}

TEST(LoaderFolders, FilesThatIncludeEachOtherEnd) {
  const TestFolder folder;
  const std::string conf = folder.Write("ld.so.conf", "include ld.so.conf\n/opt/lib\n");
  EXPECT_GT(ReadLoaderFolders(nullptr, conf).system.size(), 4u);
}

TEST(BelongsToHost, IsGlibcAndTheDriver) {
  for (const char* name : {"libc.so.6", "ld-linux-x86-64.so.2", "libm.so.6", "libpthread.so.0",
                           "libcuda.so.1", "libnvidia-ml.so.1"})
    EXPECT_TRUE(BelongsToHost(name)) << name;
  for (const char* name : {"libstdc++.so.6", "libgcc_s.so.1", "libcudart.so.13", "libcrypto.so.3",
                           "libmuster.so.0.1", "libcap.so.2", "libcudnn.so.9"})
    EXPECT_FALSE(BelongsToHost(name)) << name;
}

TEST(FindLibraries, FindsAllThatAProgramLoads) {
  const auto found = FindLibraries({kAProgram}, ReadLoaderFolders(nullptr, "/etc/ld.so.conf"));
  ASSERT_TRUE(found.ok()) << found.status();
  const std::map<std::string, std::string>& libraries = *found;
  // By its own search path; from the system's folders; what these need.
  EXPECT_THAT(libraries, testing::Contains(Pair(kItsLibrary, Not(StartsWith("/usr/")))));
  EXPECT_THAT(libraries, testing::Contains(Key(StartsWith("libarchive.so."))));
  EXPECT_THAT(libraries, testing::Contains(Key(StartsWith("libnettle.so."))));
  EXPECT_THAT(libraries, testing::Contains(Key("libstdc++.so.6")));
  EXPECT_THAT(libraries, Not(testing::Contains(Key(StartsWith("libc.so.")))));
  for (const auto& [name, path] : libraries) EXPECT_THAT(path, EndsWith("/" + name));
}

TEST(FindLibraries, NamesWhatIsMissing) {
  const auto found = FindLibraries({kAProgram}, LoaderFolders{});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(ExitCodeOf(found.status()), ExitCode::kConfiguration);
  EXPECT_THAT(
      std::string(Message(found.status())),
      AllOf(HasSubstr("bundle_sample"), HasSubstr(" needs lib"), HasSubstr("LD_LIBRARY_PATH")));
}

// The order is that of the loader: LD_LIBRARY_PATH comes before DT_RUNPATH, and DT_RPATH before
// both.
TEST(FindLibraries, KeepsTheLoadersOrder) {
  const TestFolder folder;
  LoaderFolders folders = ReadLoaderFolders(nullptr, "/etc/ld.so.conf");
  const auto found = FindLibraries({kAProgram}, folders);
  ASSERT_TRUE(found.ok()) << found.status();
  const std::string content = TestFolder::Read(found->at(kItsLibrary));
  const std::string named = folder.Write(std::string("named/") + kItsLibrary, content);
  const std::string beside = folder.Write(std::string("lib/") + kItsLibrary, content);
  // A file of another kind, which the loader skips.
  folder.Write(std::string("text/") + kItsLibrary, "no library");
  folders.first = {folder.Path("text"), folder.Path("named")};
  EXPECT_EQ((*FindLibraries({kAProgram}, folders))[kItsLibrary], named);
  absl::StatusOr<ElfFile> program = ElfFile::Read(kAProgram);
  ASSERT_TRUE(program.ok());
  ASSERT_TRUE(program->SetSearchPath("$ORIGIN/../lib"));
  const std::string moved = folder.Write("bin/program", program->bytes());
  const auto by_rpath = FindLibraries({moved}, folders);
  ASSERT_TRUE(by_rpath.ok()) << by_rpath.status();
  EXPECT_TRUE(std::filesystem::equivalent(by_rpath->at(kItsLibrary), beside));
}

// cuDNN and NVRTC load their parts when they are used, which no list in the file tells.
TEST(FindLibraries, AddsWhatIsLoadedLater) {
  const TestFolder folder;
  absl::StatusOr<ElfFile> program = ElfFile::Read(kAProgram);
  ASSERT_TRUE(program.ok());
  LoaderFolders folders = ReadLoaderFolders(nullptr, "/etc/ld.so.conf");
  // A program that needs "libcudnn.so.9" in the place of a library whose name is as long or longer.
  std::string bytes(program->bytes());
  const std::string name = "libarchive.so.13", other = "libcudnn.so.9";
  ASSERT_NE(bytes.find(name + '\0'), std::string::npos) << "needs another version of libarchive";
  bytes.replace(bytes.find(name), name.size(), other + std::string(name.size() - other.size(), 0));
  const std::string path = folder.Write("program", bytes);
  const auto all = FindLibraries({kAProgram}, folders);
  ASSERT_TRUE(all.ok());
  const std::string any = TestFolder::Read(all->at("libz.so.1"));
  for (const char* file : {"libcudnn.so.9", "libcudnn_ops.so.9", "libcudnn_cnn.so.9",
                           "libcudnn_static.a", "libother.so.9"})
    folder.Write(std::string("cuda/") + file, any);
  folders.first = {folder.Path("cuda")};
  const auto found = FindLibraries({path}, folders);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(found->contains("libcudnn.so.9"));
  EXPECT_TRUE(found->contains("libcudnn_ops.so.9"));
  EXPECT_TRUE(found->contains("libcudnn_cnn.so.9"));
  EXPECT_FALSE(found->contains("libcudnn_static.a"));
  EXPECT_FALSE(found->contains("libother.so.9"));
}

}  // namespace
}  // namespace muster
