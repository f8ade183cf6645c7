// Reads headers of numpy's .npy, format versions 1.0, 2.0 and 3.0
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html). A file has a magic
// number, the version, the length of the header, the header as the text of a Python dictionary, and
// the data.
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <map>
#include <string_view>

#include "common/base/peer_text.h"
#include "common/data/files/array_header.h"

namespace muster::data {
namespace {

static_assert(std::endian::native == std::endian::little);

// numpy's own headers have about 120 bytes. Only structured types, which are refused, need many
// more.
constexpr int64_t kMaxHeader = 64 << 10;
constexpr size_t kMaxText = 64;  // The longest type name in messages.

struct Dictionary {
  std::string descr;  // "" for a structured type.
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

// Reads "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }". Each function returns false
// if the text has another form.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  bool Read(Dictionary* header) {
    if (!Accept("{")) return false;
    bool descr = false, order = false, shape = false;
    while (!Accept("}")) {
      std::string key;
      if (!ReadString(&key) || !Accept(":")) return false;
      bool* seen = key == "descr"           ? &descr
                   : key == "fortran_order" ? &order
                   : key == "shape"         ? &shape
                                            : nullptr;
      if (seen == nullptr || *seen) return false;
      *seen = true;
      if (seen == &descr && NextIs('[')) {
        header->descr = "";  // Skips the list of fields of a structured type.
        return true;
      }
      if (seen == &descr && !ReadString(&header->descr)) return false;
      if (seen == &order && !ReadBool(&header->fortran_order)) return false;
      if (seen == &shape && !ReadTuple(&header->shape)) return false;
      if (!Accept(",") && !NextIs('}')) return false;
    }
    SkipSpace();
    return text_.empty() && descr && order && shape;
  }

 private:
  void SkipSpace() {
    while (!text_.empty() && std::string_view(" \t\r\n").find(text_[0]) != std::string_view::npos) {
      text_.remove_prefix(1);
    }
  }
  bool NextIs(char c) {
    SkipSpace();
    return !text_.empty() && text_[0] == c;
  }
  bool Accept(std::string_view word) {
    SkipSpace();
    if (text_.substr(0, word.size()) != word) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  bool ReadString(std::string* out) {
    if (!NextIs('\'') && !NextIs('"')) return false;
    const size_t end = text_.find(text_[0], 1);
    if (end == std::string_view::npos) return false;
    *out = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return true;
  }
  bool ReadBool(bool* out) {
    *out = Accept("True");
    return *out || Accept("False");
  }
  bool ReadTuple(std::vector<int64_t>* out) {
    if (!Accept("(")) return false;
    while (!Accept(")")) {
      SkipSpace();
      size_t digits = 0;
      int64_t value = 0;
      for (; digits < text_.size() && text_[digits] >= '0' && text_[digits] <= '9'; ++digits) {
        if (digits == 18) return false;
        value = value * 10 + (text_[digits] - '0');
      }
      if (digits == 0) return false;
      text_.remove_prefix(digits);
      Accept("L");  // Python 2 writes an L after the number.
      out->push_back(value);
      if (!Accept(",") && !NextIs(')')) return false;
    }
    return true;
  }

  std::string_view text_;
};

absl::StatusOr<NumberType> TypeOf(const std::string& path, const std::string& descr) {
  static const std::map<std::string_view, NumberType> kTypes = {
      {"f2", NumberType::kFloat16}, {"f4", NumberType::kFloat32}, {"f8", NumberType::kFloat64},
      {"i1", NumberType::kInt8},    {"i2", NumberType::kInt16},   {"i4", NumberType::kInt32},
      {"i8", NumberType::kInt64},   {"u1", NumberType::kUInt8},   {"b1", NumberType::kBool}};
  const char order = descr.empty() ? '|' : descr[0];
  const std::string_view kind = std::string_view(descr).substr(descr.empty() ? 0 : 1);
  if (kind.substr(0, 1) == "O") {
    return DataError(fmt::format(
        "'{}' holds Python objects (dtype '{}'), not numbers: save an array of a numeric dtype.",
        path, SanitizePeerText(descr, kMaxText)));
  }
  const auto found = kTypes.find(kind);
  const bool single = found != kTypes.end() && BytesOf(found->second) == 1;
  if (order == '>' && !single) {
    return DataError(
        fmt::format("'{}' holds big-endian numbers (dtype '{}'): save it as little-endian, with "
                    "array.astype('<{}').",
                    path, SanitizePeerText(descr, kMaxText), SanitizePeerText(kind, kMaxText)));
  }
  if (found == kTypes.end() || std::string_view("<>|=").find(order) == std::string_view::npos) {
    return DataError(fmt::format(
        "'{}' holds {}, which is not supported: use float16, float32, float64, int8 to int64, "
        "uint8 or bool.",
        path,
        descr.empty() ? "records" : fmt::format("dtype '{}'", SanitizePeerText(descr, kMaxText))));
  }
  return found->second;
}

// Returns the header's text. Sets *bytes_read to the offset of the data.
absl::StatusOr<std::string> ReadHeaderText(ByteSource& source, const std::string& path,
                                           int64_t* bytes_read) {
  uint8_t start[8], length[4] = {};
  MUSTER_RETURN_IF_ERROR(ReadExactly(source, start, sizeof(start), path, "its header"));
  if (std::memcmp(start, "\x93NUMPY", 6) != 0) {
    return DataError(
        fmt::format("'{}' is not an npy file: it does not begin with \\x93NUMPY.", path));
  }
  const int major = start[6], minor = start[7];
  if (major < 1 || major > 3 || minor != 0) {
    return DataError(fmt::format("'{}' is an npy file of version {}.{}; 1.0, 2.0 and 3.0 are read.",
                                 path, major, minor));
  }
  const int length_bytes = major == 1 ? 2 : 4;
  MUSTER_RETURN_IF_ERROR(ReadExactly(source, length, length_bytes, path, "its header"));
  const int64_t size = length[0] | length[1] << 8 | length[2] << 16 | int64_t{length[3]} << 24;
  if (size > kMaxHeader) {
    return DataError(fmt::format("'{}' is damaged: its npy header claims {} bytes.", path, size));
  }
  std::string text(size, '\0');
  MUSTER_RETURN_IF_ERROR(ReadExactly(source, text.data(), size, path, "its header"));
  *bytes_read = static_cast<int64_t>(sizeof(start)) + length_bytes + size;
  return text;
}

}  // namespace

absl::StatusOr<ArrayHeader> ReadNpyHeader(ByteSource& source, const std::string& path) {
  ArrayHeader header;
  MUSTER_ASSIGN_OR_RETURN(const std::string text,
                          ReadHeaderText(source, path, &header.header_bytes));
  Dictionary dictionary;
  if (!HeaderReader(text).Read(&dictionary)) {
    return DataError(fmt::format("'{}' is damaged: its npy header is not one of an array.", path));
  }
  MUSTER_ASSIGN_OR_RETURN(header.type, TypeOf(path, dictionary.descr));
  if (dictionary.shape.size() > kMaxDimensions) {
    return DataError(fmt::format("'{}' has {} dimensions; at most {} are read.", path,
                                 dictionary.shape.size(), kMaxDimensions));
  }
  header.shape = std::move(dictionary.shape);
  header.fortran_order = dictionary.fortran_order;
  return header;
}

}  // namespace muster::data
