#include "common/summary/png.h"

#include <gmock/gmock.h>
#include <png.h>

#include <vector>

namespace muster::summary {
namespace {

using testing::HasSubstr;

// Returns the pixels that libpng reads, with as many channels as the file has.
std::vector<uint8_t> Decode(const std::string& file, int* height, int* width, int* channels) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_NE(png_image_begin_read_from_memory(&image, file.data(), file.size()), 0);
  EXPECT_EQ(image.format & PNG_FORMAT_FLAG_LINEAR, 0u);
  *height = static_cast<int>(image.height);
  *width = static_cast<int>(image.width);
  *channels = PNG_IMAGE_SAMPLE_CHANNELS(image.format);
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(image));
  EXPECT_NE(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr), 0);
  return pixels;
}

TEST(EncodePng, KeepsEveryPixel) {
  for (const int channels : {1, 3, 4}) {
    for (const auto& [height, width] : {std::pair(1, 1), {5, 3}, {28, 28}, {300, 7}}) {
      std::vector<uint8_t> pixels(height * width * channels);
      uint32_t state = 1;
      for (uint8_t& pixel : pixels) pixel = (state = state * 1664525 + 1013904223) >> 24;
      const auto file = EncodePng(pixels.data(), height, width, channels);
      ASSERT_TRUE(file.ok()) << file.status();
      int h = 0, w = 0, c = 0;
      EXPECT_EQ(Decode(*file, &h, &w, &c), pixels);
      EXPECT_EQ(h, height);
      EXPECT_EQ(w, width);
      EXPECT_EQ(c, channels);
    }
  }
}

TEST(EncodePng, NamesWhatIsWrong) {
  const std::vector<uint8_t> pixels(100);
  EXPECT_THAT(Message(EncodePng(pixels.data(), 5, 5, 2).status()), HasSubstr("this one 2"));
  EXPECT_THAT(Message(EncodePng(pixels.data(), 0, 5, 1).status()), HasSubstr("0 x 5"));
  EXPECT_THAT(Message(EncodePng(pixels.data(), 1, 1 << 20, 1).status()), HasSubstr("1 x 1048576"));
}

}  // namespace
}  // namespace muster::summary
