// Pictures: what Muster's own code does around libpng and libjpeg, and those.
#include "common/data/image/image.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const std::string_view bytes = fuzz::Text(data, size);
  // A picture of up to kMaxPixels may be read; here a small one is enough.
  for (const int channels : {1, 3}) {
    const auto image = data::DecodeImage(bytes, "the input", channels);
    if (image.ok())
      fuzz::Require(
          image->pixels.size() == static_cast<size_t>(image->height * image->width * channels),
          "as many pixels as its size says");
  }
  std::vector<uint8_t> planes(3 * 4 * 6);
  (void)data::DecodePlanes(bytes, "the input", 4, 6, planes.data());
  return 0;
}
