#include "deploy/bundle/contents.h"

#include <gmock/gmock.h>

#include "tests/unit/bundle/test_folder.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A folder with one program in the place of all.
class Contents : public testing::Test {
 protected:
  Contents() {
    absl::StatusOr<ElfFile> program = ElfFile::Read(kAProgram);
    for (const char* name : {"muster", "muster-chief", "muster-evaluator", "muster-ps",
                             "muster-tool", "muster-worker"})
      folder_.Write(std::string("bin/") + name, program->bytes());
    request_.bin_dir = folder_.Path("bin");
    request_.folders = ReadLoaderFolders(nullptr, "/etc/ld.so.conf");
  }

  const BundleEntry* Find(const Bundle& bundle, const std::string& name) {
    for (const BundleEntry& entry : bundle.entries)
      if (entry.name == name) return &entry;
    return nullptr;
  }
  std::string Refusal() { return std::string(Message(PlanBundle(request_).status())); }

  const TestFolder folder_;
  BundleRequest request_;
};

TEST_F(Contents, AreInOrderAndDescribed) {
  request_.programs = {folder_.Write("own.so", TestFolder::Read(kAProgram))};
  const absl::StatusOr<Bundle> bundle = PlanBundle(request_);
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  for (size_t i = 1; i < bundle->entries.size(); ++i)
    EXPECT_LT(bundle->entries[i - 1].name, bundle->entries[i].name);
  ASSERT_NE(Find(*bundle, "bin/muster-worker"), nullptr);
  EXPECT_EQ(Find(*bundle, "bin/muster-worker")->search_path, "$ORIGIN/../lib");
  ASSERT_NE(Find(*bundle, "lib/libstdc++.so.6"), nullptr);
  EXPECT_EQ(Find(*bundle, "lib/libstdc++.so.6")->search_path, "$ORIGIN");
  ASSERT_NE(Find(*bundle, "programs/own.so"), nullptr);
  EXPECT_EQ(Find(*bundle, "lib/libc.so.6"), nullptr);
  ASSERT_NE(Find(*bundle, "bundle.json"), nullptr);
  EXPECT_THAT(Find(*bundle, "bundle.json")->text,
              AllOf(HasSubstr("\"devices\": \"cpu\""), HasSubstr("\"programs/own.so\""),
                    HasSubstr("\"glibc\": \"2.")));
}

TEST_F(Contents, WhatIsMissingIsNamed) {
  request_.programs = {folder_.Path("none.so")};
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("cannot read"), HasSubstr("none.so")));
  request_.programs = {folder_.Write("a/own.so", TestFolder::Read(kAProgram)),
                       folder_.Write("b/own.so", TestFolder::Read(kAProgram))};
  EXPECT_THAT(Refusal(), HasSubstr("two programs would be programs/own.so"));
  request_.programs.clear();
  request_.cuda = true;
  EXPECT_THAT(Refusal(), HasSubstr("was built without CUDA"));
  request_.cuda = false;
  std::filesystem::remove(folder_.Path("bin/muster-tool"));
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr("bin/muster-tool is missing"), HasSubstr("make programs")));
}

TEST_F(Contents, AnotherProcessorIsRefused) {
  std::string other = TestFolder::Read(kAProgram);
  other[18] = static_cast<char>(183);  // e_machine: AArch64
  request_.programs = {folder_.Write("own.so", other)};
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("own.so"), HasSubstr("another kind of processor")));
}

}  // namespace
}  // namespace muster
