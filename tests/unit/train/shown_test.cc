// Tests the conversion of values that a program shows to a message and back.
#include "common/train/shown.h"

#include <gmock/gmock.h>

#include <cmath>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ImageReport Pictures(const std::string& tag, int count, int side) {
  ImageReport report{tag, 0, count, side, side, 1, {}};
  for (int i = 0; i < count; ++i)
    report.pixels.insert(report.pixels.end(), static_cast<size_t>(side) * side,
                         static_cast<uint8_t>(i + 1));
  return report;
}

TEST(Shown, ComesBackAsItWas) {
  std::vector<std::string> left_out;
  const proto::Shown shown =
      ToMessage({{"input", 0, 2, 1, 3, 1, {1, 2, 3, 4, 5, 255}}},
                {{"numbers", 0, summary::DistributionOf({1, -2, NAN})},
                 {"nothing", 0, summary::DistributionOf(std::vector<double>())}},
                &left_out);
  EXPECT_THAT(left_out, IsEmpty());
  EXPECT_TRUE(CheckShown(shown).ok());
  const ImageReport images = ImagesOf(shown.images(0), 7);
  EXPECT_EQ(images.tag, "input");
  EXPECT_EQ(images.step, 7);
  EXPECT_THAT((std::vector<int>{images.count, images.height, images.width, images.channels}),
              ElementsAre(2, 1, 3, 1));
  EXPECT_THAT(images.pixels, ElementsAre(1, 2, 3, 4, 5, 255));
  const HistogramReport numbers = HistogramOf(shown.histograms(0), 7);
  const summary::Distribution want = summary::DistributionOf({1, -2, NAN});
  EXPECT_EQ(numbers.tag, "numbers");
  EXPECT_EQ(numbers.step, 7);
  EXPECT_EQ(numbers.distribution.count, 2);
  EXPECT_EQ(numbers.distribution.not_finite, 1);
  EXPECT_EQ(numbers.distribution.min, -2);
  EXPECT_EQ(numbers.distribution.max, 1);
  EXPECT_EQ(numbers.distribution.sum, -1);
  EXPECT_EQ(numbers.distribution.sum_squares, 5);
  EXPECT_EQ(numbers.distribution.limits, want.limits);
  EXPECT_EQ(numbers.distribution.counts, want.counts);
  EXPECT_EQ(HistogramOf(shown.histograms(1), 7).distribution.count, 0);
}

// Three pictures of a tag, 4 MiB each: one fits. A distribution is small however many numbers it
// is of, and goes first.
TEST(Shown, IsBounded) {
  std::vector<std::string> left_out;
  const proto::Shown shown = ToMessage(
      {Pictures("large", 3, 2048), Pictures("small", 2, 16), Pictures("larger", 1, 4096)},
      {{"numbers", 0, summary::DistributionOf(std::vector<double>(2'000'000, 0.5))}}, &left_out);
  EXPECT_THAT(left_out, ElementsAre("large", "larger"));
  EXPECT_LE(shown.ByteSizeLong(), kMaxShownBytes);
  EXPECT_TRUE(CheckShown(shown).ok());
  ASSERT_EQ(shown.images_size(), 2);
  EXPECT_EQ(shown.images(0).tag(), "large");
  EXPECT_EQ(ImagesOf(shown.images(0), 0).pixels, Pictures("large", 1, 2048).pixels);
  EXPECT_EQ(shown.images(1).count(), 2);
  EXPECT_EQ(shown.histograms(0).count(), 2'000'000);
}

TEST(Shown, WhatNoWorkerMakesIsRefused) {
  const auto refusal = [](const auto& change) {
    std::vector<std::string> left_out;
    proto::Shown shown = ToMessage({Pictures("input", 2, 4)},
                                   {{"numbers", 0, summary::DistributionOf({1})}}, &left_out);
    change(&shown);
    return std::string(Message(CheckShown(shown)));
  };
  EXPECT_EQ(refusal([](proto::Shown*) {}), "");
  EXPECT_EQ(refusal([](proto::Shown* shown) { shown->mutable_images(0)->set_count(3); }),
            "what was shown as \"input\" has 32 bytes of pixels, and not 48");
  for (const int size : {0, -1, 2'000'000'000}) {
    EXPECT_THAT(refusal([size](proto::Shown* shown) { shown->mutable_images(0)->set_width(size); }),
                HasSubstr("has no pixels, or too many"));
  }
  EXPECT_THAT(refusal([](proto::Shown* shown) {
                for (auto set : {&proto::Shown::Images::set_count, &proto::Shown::Images::set_width,
                                 &proto::Shown::Images::set_height})
                  (shown->mutable_images(0)->*set)(6'000'000);
              }),
              HasSubstr("has 32 bytes of pixels"))
      << "no overflow";
  EXPECT_EQ(refusal([](proto::Shown* shown) { shown->mutable_histograms(0)->clear_counts(); }),
            "what was shown as \"numbers\" has 1 limits of buckets, and 0 counts");
}

}  // namespace
}  // namespace muster
