#include <fmt/format.h>
// libjpeg's header needs FILE and size_t declared.
#include <cstdio>
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on
#include <csetjmp>
#include <cstring>

#include "common/data/image/codecs.h"
#include "common/data/image/pixels.h"

namespace muster::data {
namespace {

// Reads one JPEG file. libjpeg reports errors by longjmp, which runs no destructors. Functions
// between Guarded()'s setjmp and libjpeg's calls must therefore have no objects with destructors.
// The destructor of the reader releases all resources.
class JpegReader {
 public:
  explicit JpegReader(std::string_view bytes) : bytes_(bytes) {
    jpeg_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = Fail;
    errors_.base.emit_message = Note;
    errors_.base.output_message = [](j_common_ptr) {};
  }
  ~JpegReader() { jpeg_destroy_decompress(&jpeg_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  bool ReadHeader() {
    return Guarded(
        [](JpegReader* self) {
          jpeg_create_decompress(&self->jpeg_);
          jpeg_mem_src(&self->jpeg_, reinterpret_cast<const uint8_t*>(self->bytes_.data()),
                       self->bytes_.size());
          jpeg_save_markers(&self->jpeg_, JPEG_APP0 + 1, 0xffff);
          jpeg_read_header(&self->jpeg_, TRUE);
        },
        this);
  }

  // Reads rows of jpeg().image_width pixels of jpeg().out_color_components bytes.
  bool ReadPixels(uint8_t* pixels) {
    pixels_ = pixels;
    return Guarded(
        [](JpegReader* self) {
          jpeg_decompress_struct& jpeg = self->jpeg_;
          jpeg_start_decompress(&jpeg);
          const size_t stride = size_t{jpeg.output_width} * jpeg.output_components;
          while (jpeg.output_scanline < jpeg.output_height) {
            JSAMPROW row = self->pixels_ + jpeg.output_scanline * stride;
            jpeg_read_scanlines(&jpeg, &row, 1);
          }
          jpeg_finish_decompress(&jpeg);
        },
        this);
  }

  // Reads into planes of image_height x image_width bytes, through a buffer of a few rows.
  bool ReadPlanes(uint8_t* planes) {
    pixels_ = planes;
    rows_.resize(kRows * jpeg_.image_width * 3);
    return Guarded(
        [](JpegReader* self) {
          jpeg_decompress_struct& jpeg = self->jpeg_;
          jpeg_start_decompress(&jpeg);
          const int64_t width = jpeg.output_width, stride = width * 3;
          while (jpeg.output_scanline < jpeg.output_height) {
            const int64_t first = jpeg.output_scanline;
            const auto last = static_cast<JDIMENSION>(first + kRows);
            while (jpeg.output_scanline < jpeg.output_height && jpeg.output_scanline < last) {
              JSAMPROW row = self->rows_.data() + (jpeg.output_scanline - first) * stride;
              jpeg_read_scanlines(&jpeg, &row, 1);
            }
            CopyPlanes({self->rows_.data(), jpeg.output_scanline - first, width, 3, stride},
                       /*flip=*/false, self->pixels_ + first * width, width * jpeg.output_height);
          }
          jpeg_finish_decompress(&jpeg);
        },
        this);
  }

  jpeg_decompress_struct& jpeg() { return jpeg_; }
  bool truncated() const { return errors_.truncated; }
  const char* message() const { return errors_.message; }
  // Returns the number of bytes of the file that were read.
  size_t offset() const {
    return errors_.truncated || jpeg_.src == nullptr ? bytes_.size()
                                                     : bytes_.size() - jpeg_.src->bytes_in_buffer;
  }

  int Orientation() const {
    for (auto* marker = jpeg_.marker_list; marker != nullptr; marker = marker->next) {
      const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
      if (data.starts_with(std::string_view("Exif\0\0", 6))) return OrientationOf(data.substr(6));
    }
    return 1;
  }

 private:
  static constexpr int64_t kRows = 8;

  struct Errors {
    // The first member, so that libjpeg's pointer to `base` is also a pointer to this struct.
    jpeg_error_mgr base;
    jmp_buf leave;
    bool truncated = false;
    char message[JMSG_LENGTH_MAX] = {};
  };

  // Calls `call` and returns true on success. Must not be inlined into functions with destructors.
  [[gnu::noinline]] static bool Guarded(void (*call)(JpegReader*), JpegReader* self) {
    if (setjmp(self->errors_.leave) != 0) return false;
    call(self);
    return true;
  }

  [[noreturn]] static void Fail(j_common_ptr jpeg) {
    auto* errors = reinterpret_cast<Errors*>(jpeg->err);
    errors->truncated |= errors->base.msg_code == JERR_INPUT_EOF;
    (*errors->base.format_message)(jpeg, errors->message);
    longjmp(errors->leave, 1);
  }

  // Negative levels are warnings. For missing or damaged data, libjpeg warns and continues with
  // grey pixels. This function records that as an error. Other warnings do not affect the decoding.
  static void Note(j_common_ptr jpeg, int level) {
    if (level >= 0) return;
    auto* errors = reinterpret_cast<Errors*>(jpeg->err);
    switch (errors->base.msg_code) {
      case JWRN_JPEG_EOF:
        errors->truncated = true;
        Fail(jpeg);
      case JWRN_HIT_MARKER:
      case JWRN_HUFF_BAD_CODE:
      case JWRN_ARITH_BAD_CODE:
      case JWRN_MUST_RESYNC:
        Fail(jpeg);
      default:
        break;
    }
  }

  const std::string_view bytes_;
  uint8_t* pixels_ = nullptr;
  Pixels rows_;
  Errors errors_;
  jpeg_decompress_struct jpeg_{};
};

absl::Status Broken(const JpegReader& reader, const std::string& name) {
  if (reader.truncated()) {
    return DataError(fmt::format("'{}' is truncated: its JPEG data break off at byte {}.", name,
                                 reader.offset()));
  }
  return DataError(
      fmt::format("'{}' is damaged, or a JPEG file of a kind that is not read: {} "
                  "(near byte {}).",
                  name, reader.message(), reader.offset()));
}

// Adobe's and other programs store CMYK inverted. Like Pillow, treats every CMYK file as inverted.
void CmykToRgb(const Pixels& cmyk, Pixels* rgb) {
  for (size_t pixel = 0; pixel < cmyk.size() / 4; ++pixel) {
    const int light = cmyk[4 * pixel + 3];  // 255 minus the amount of black ink.
    for (size_t c = 0; c < 3; ++c) {
      // The product divided by 255 and rounded.
      const int product = (255 - cmyk[4 * pixel + c]) * light + 128;
      const int ink = ((product >> 8) + product) >> 8;
      (*rgb)[3 * pixel + c] = static_cast<uint8_t>(light - ink);
    }
  }
}

// Reads the header and selects RGB output, or CMYK output if the file has CMYK.
absl::Status Begin(JpegReader* reader, const std::string& name) {
  if (!reader->ReadHeader()) return Broken(*reader, name);
  jpeg_decompress_struct& jpeg = reader->jpeg();
  MUSTER_RETURN_IF_ERROR(CheckPixels(jpeg.image_height, jpeg.image_width, name));
  const bool cmyk = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  jpeg.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Decoded> DecodeJpeg(std::string_view bytes, const std::string& name) {
  JpegReader reader(bytes);
  MUSTER_RETURN_IF_ERROR(Begin(&reader, name));
  jpeg_decompress_struct& jpeg = reader.jpeg();
  const bool cmyk = jpeg.out_color_space == JCS_CMYK;
  Decoded decoded;
  decoded.orientation = reader.Orientation();
  Image& image = decoded.image;
  image.height = jpeg.image_height;
  image.width = jpeg.image_width;
  image.pixels.resize(image.height * image.width * 3);
  Pixels inks(cmyk ? image.height * image.width * 4 : 0);
  if (!reader.ReadPixels(cmyk ? inks.data() : image.pixels.data())) return Broken(reader, name);
  if (cmyk) CmykToRgb(inks, &image.pixels);
  return decoded;
}

absl::StatusOr<bool> DecodeJpegPlanes(std::string_view bytes, const std::string& name,
                                      int64_t height, int64_t width, uint8_t* planes) {
  JpegReader reader(bytes);
  MUSTER_RETURN_IF_ERROR(Begin(&reader, name));
  jpeg_decompress_struct& jpeg = reader.jpeg();
  if (jpeg.image_height != height || jpeg.image_width != width ||
      jpeg.out_color_space == JCS_CMYK || reader.Orientation() != 1) {
    return false;
  }
  if (!reader.ReadPlanes(planes)) return Broken(reader, name);
  return true;
}

}  // namespace muster::data
