#include "common/base/files/descriptors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

namespace muster {
namespace {

TEST(DescriptorsTest, TheSoftLimitIsRaisedToTheHardOne) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{64, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(RaiseDescriptorLimit(), static_cast<int64_t>(before.rlim_max));
  rlimit after{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
}

TEST(DescriptorsTest, ALimitThatIsTooLowIsNamedWithWhatIsNeeded) {
  EXPECT_EQ(DescriptorWarning(1024, 200, /*is_chief=*/true), "");
  EXPECT_THAT(DescriptorWarning(1024, 505, /*is_chief=*/true),
              testing::AllOf(testing::HasSubstr("1024 files"), testing::HasSubstr("505 members"),
                             testing::HasSubstr("2220")));
  EXPECT_EQ(DescriptorWarning(1024, 505, /*is_chief=*/false), "");
}

TEST(DescriptorsTest, ALimitThatNoProcessCanBeginWithIsRefused) {
  const absl::Status few = CheckDescriptorLimit(31, 2, /*is_chief=*/false);
  EXPECT_EQ(ExitCodeOf(few), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(few)), testing::HasSubstr("may open 31 files, and needs 32"));
  EXPECT_TRUE(CheckDescriptorLimit(32, 500, /*is_chief=*/false).ok());
  EXPECT_FALSE(CheckDescriptorLimit(500, 500, /*is_chief=*/true).ok());
}

}  // namespace
}  // namespace muster
