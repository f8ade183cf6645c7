#include "deploy/bundle/licenses.h"

#include <gmock/gmock.h>

#include "tests/unit/bundle/test_folder.h"

namespace muster {
namespace {

using testing::Pair;
using testing::UnorderedElementsAre;

TEST(Licenses, AreThoseOfThePackages) {
  const TestFolder folder;
  folder.Write("lists/liba1:amd64.list", "/.\n/usr/lib/liba.so.1\n/usr/lib/liba.so.1.2\n");
  folder.Write("lists/libb2.list", "/lib/libb.so.2\n");
  folder.Write("lists/other.list", "/usr/lib/libother.so.1\n");
  folder.Write("lists/liba1:amd64.md5sums", "0  usr/lib/liba.so.1\n");
  const std::string a = folder.Write("doc/liba1/copyright", "A"),
                    b = folder.Write("doc/libb2/copyright", "B");
  folder.Write("doc/other/copyright", "other");
  // The layout of packages that pip installs.
  const std::string c = folder.Write("x/site-packages/c/lib/libc_1.so", "");
  folder.Write("x/site-packages/c-1.0.dist-info/RECORD", "c/lib/libc_1.so,sha256=0,0\n");
  const std::string text = folder.Write("x/site-packages/c-1.0.dist-info/licenses/LICENSE", "C");
  folder.Write("x/site-packages/d-1.0.dist-info/RECORD", "d/lib/libd_1.so,sha256=0,0\n");
  folder.Write("x/site-packages/d-1.0.dist-info/licenses/LICENSE", "D");
  EXPECT_THAT(
      FindLicenses({{"liba.so.1", "/lib/liba.so.1"},
                    {"libb.so.2", "/usr/lib/libb.so.2"},
                    {"libc_1.so", folder.Path("x/site-packages/other/../c/lib/libc_1.so")},
                    {"own.so", folder.Path("own.so")}},
                   {folder.Path("lists"), folder.Path("doc")}),
      UnorderedElementsAre(Pair("liba1", a), Pair("libb2", b), Pair("c-1.0-LICENSE", text)));
}

TEST(Licenses, WithoutAPackageManagerThereAreNone) {
  EXPECT_TRUE(FindLicenses({{"liba.so.1", "/lib/liba.so.1"}}, {"/none", "/none"}).empty());
}

}  // namespace
}  // namespace muster
