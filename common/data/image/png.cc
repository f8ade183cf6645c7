#include <fmt/format.h>
#include <png.h>

#include <csetjmp>
#include <cstring>

#include "common/data/image/codecs.h"

namespace muster::data {
namespace {

// Reads one PNG file. libpng reports errors by longjmp, which runs no destructors. Functions
// between Guarded()'s setjmp and libpng's calls must therefore have no objects with destructors.
// The destructor of the reader releases all resources.
class PngReader {
 public:
  explicit PngReader(std::string_view bytes) : bytes_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, Fail,
                                  [](png_structp, png_const_charp) {});
    if (png_ == nullptr) return;
    info_ = png_create_info_struct(png_);
  }
  ~PngReader() {
    if (png_ != nullptr) png_destroy_read_struct(&png_, &info_, nullptr);
  }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  bool made() const { return info_ != nullptr; }

  bool ReadHeader() {
    return Guarded(
        [](PngReader* self) {
          png_structp png = self->png_;
          png_set_read_fn(png, self, Read);
          png_set_chunk_malloc_max(png, 64 << 20);
          png_read_info(png, self->info_);
          png_set_strip_16(png);
          png_set_packing(png);
          const int type = png_get_color_type(png, self->info_);
          if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
          if (type == PNG_COLOR_TYPE_GRAY || type == PNG_COLOR_TYPE_GRAY_ALPHA) {
            png_set_expand_gray_1_2_4_to_8(png);
            png_set_gray_to_rgb(png);
          }
          png_set_strip_alpha(png);
          self->passes_ = png_set_interlace_handling(png);
          png_read_update_info(png, self->info_);
          self->stride_ = png_get_rowbytes(png, self->info_);
        },
        this);
  }

  // Reads rows of stride() bytes.
  bool ReadPixels(uint8_t* pixels) {
    pixels_ = pixels;
    return Guarded(
        [](PngReader* self) {
          const size_t height = self->height();
          for (int pass = 0; pass < self->passes_; ++pass) {
            for (size_t row = 0; row < height; ++row)
              png_read_row(self->png_, self->pixels_ + row * self->stride_, nullptr);
          }
          png_read_end(self->png_, self->info_);
        },
        this);
  }

  size_t height() const { return png_get_image_height(png_, info_); }
  size_t width() const { return png_get_image_width(png_, info_); }
  size_t stride() const { return stride_; }
  bool truncated() const { return truncated_; }
  const char* message() const { return message_; }
  size_t offset() const { return offset_; }

  int Orientation() {
    png_bytep exif = nullptr;
    png_uint_32 size = 0;
    if (png_get_eXIf_1(png_, info_, &size, &exif) == 0 || exif == nullptr) return 1;
    return OrientationOf({reinterpret_cast<const char*>(exif), size});
  }

 private:
  // Calls `call` and returns true on success. Must not be inlined into functions with destructors.
  [[gnu::noinline]] static bool Guarded(void (*call)(PngReader*), PngReader* self) {
    if (setjmp(png_jmpbuf(self->png_)) != 0) return false;
    call(self);
    return true;
  }

  [[noreturn]] static void Fail(png_structp png, png_const_charp message) {
    auto* self = static_cast<PngReader*>(png_get_error_ptr(png));
    std::strncpy(self->message_, message, sizeof(self->message_) - 1);
    png_longjmp(png, 1);
  }

  static void Read(png_structp png, png_bytep to, size_t count) {
    auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (count > self->bytes_.size() - self->offset_) {
      self->truncated_ = true;
      self->offset_ = self->bytes_.size();
      png_error(png, "the data break off");
    }
    std::memcpy(to, self->bytes_.data() + self->offset_, count);
    self->offset_ += count;
  }

  const std::string_view bytes_;
  size_t offset_ = 0, stride_ = 0;
  int passes_ = 1;
  uint8_t* pixels_ = nullptr;
  bool truncated_ = false;
  char message_[128] = {};
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

absl::Status Broken(const PngReader& reader, const std::string& name) {
  if (reader.truncated()) {
    return DataError(fmt::format("'{}' is truncated: its PNG data break off at byte {}.", name,
                                 reader.offset()));
  }
  return DataError(
      fmt::format("'{}' is damaged: {} (near byte {}).", name, reader.message(), reader.offset()));
}

}  // namespace

absl::StatusOr<Decoded> DecodePng(std::string_view bytes, const std::string& name) {
  PngReader reader(bytes);
  if (!reader.made()) return DataError(fmt::format("'{}': no memory for libpng.", name));
  if (!reader.ReadHeader()) return Broken(reader, name);
  Decoded decoded;
  Image& image = decoded.image;
  image.height = static_cast<int64_t>(reader.height());
  image.width = static_cast<int64_t>(reader.width());
  MUSTER_RETURN_IF_ERROR(CheckPixels(image.height, image.width, name));
  if (reader.stride() != reader.width() * 3) {
    return DataError(fmt::format("'{}' is a PNG file of a kind that is not read.", name));
  }
  image.pixels.resize(image.height * image.width * 3);
  if (!reader.ReadPixels(image.pixels.data())) return Broken(reader, name);
  decoded.orientation = reader.Orientation();
  return decoded;
}

}  // namespace muster::data
