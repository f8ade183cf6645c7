// numpy's .npy, format versions 1.0, 2.0 and 3.0
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html): magic, version, length
// of the header, the header as the text of a Python dictionary, the data.
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <string_view>

#include "common/data/array_file.h"
#include "muster/data.h"

namespace muster::data {
namespace {

static_assert(std::endian::native == std::endian::little);

// numpy's own headers have about 120 bytes; only structured types, refused here, need many.
constexpr int64_t kMaxHeader = 64 << 10;

struct Header {
  std::string descr;  // "" for a structured type
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

// Reads "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }". Each Read* is false where
// the text is something else.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  bool Read(Header* header) {
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
        header->descr = "";  // a list of fields, with nothing else in it that matters here
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
      Accept("L");  // Python 2
      out->push_back(value);
      if (!Accept(",") && !NextIs(')')) return false;
    }
    return true;
  }

  std::string_view text_;
};

absl::StatusOr<at::ScalarType> TypeOf(const std::string& path, const std::string& descr) {
  static const std::map<std::string_view, at::ScalarType> kTypes = {
      {"f2", at::kHalf}, {"f4", at::kFloat}, {"f8", at::kDouble},
      {"i1", at::kChar}, {"i2", at::kShort}, {"i4", at::kInt},
      {"i8", at::kLong}, {"u1", at::kByte},  {"b1", at::kBool}};
  const char order = descr.empty() ? '|' : descr[0];
  const std::string_view kind = std::string_view(descr).substr(descr.empty() ? 0 : 1);
  if (kind.substr(0, 1) == "O") {
    return DataError(fmt::format(
        "'{}' holds Python objects (dtype '{}'), not numbers: save an array of a numeric dtype.",
        path, descr));
  }
  const auto found = kTypes.find(kind);
  const bool single = found != kTypes.end() && c10::elementSize(found->second) == 1;
  if (order == '>' && !single) {
    return DataError(
        fmt::format("'{}' holds big-endian numbers (dtype '{}'): save it as little-endian, with "
                    "array.astype('<{}').",
                    path, descr, kind));
  }
  if (found == kTypes.end() || std::string_view("<>|=").find(order) == std::string_view::npos) {
    return DataError(fmt::format(
        "'{}' holds {}, which is not supported: use float16, float32, float64, int8 to int64, "
        "uint8 or bool.",
        path, descr.empty() ? "records" : fmt::format("dtype '{}'", descr)));
  }
  return found->second;
}

// The header's text; `*bytes_read` is where the data begin.
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

absl::Status CheckBools(const at::Tensor& tensor, const std::string& path) {
  const auto* bytes = static_cast<const uint8_t*>(tensor.const_data_ptr());
  if (std::all_of(bytes, bytes + tensor.numel(), [](uint8_t byte) { return byte <= 1; })) {
    return absl::OkStatus();
  }
  return DataError(fmt::format("'{}' is damaged: a bool in it is neither 0 nor 1.", path));
}

struct Opened {
  std::unique_ptr<ByteSource> source;  // the data are next
  int64_t header_bytes = 0;
  Header header;
  at::ScalarType type = at::kFloat;
};

absl::StatusOr<Opened> OpenNpy(std::unique_ptr<ByteSource> source, const std::string& path) {
  Opened opened;
  opened.source = std::move(source);
  MUSTER_ASSIGN_OR_RETURN(std::string text,
                          ReadHeaderText(*opened.source, path, &opened.header_bytes));
  Header& header = opened.header;
  if (!HeaderReader(text).Read(&header)) {
    return DataError(fmt::format("'{}' is damaged: its npy header is not one of an array.", path));
  }
  MUSTER_ASSIGN_OR_RETURN(opened.type, TypeOf(path, header.descr));
  if (header.shape.size() > kMaxDimensions) {
    return DataError(fmt::format("'{}' has {} dimensions; at most {} are read.", path,
                                 header.shape.size(), kMaxDimensions));
  }
  return opened;
}

absl::StatusOr<Opened> OpenNpy(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(auto source, OpenBytes(path, false));
  return OpenNpy(std::move(source), path);
}

// Whether the bytes of the file are those of a tensor, and all of them are there.
bool Mappable(const Opened& opened) {
  const std::optional<int64_t> bytes =
      ArrayBytes(opened.header.shape, static_cast<int64_t>(c10::elementSize(opened.type)));
  return !opened.header.fortran_order && opened.type != at::kBool && bytes.value_or(0) > 0 &&
         opened.source->MayHold(opened.header_bytes + *bytes);
}

absl::StatusOr<at::Tensor> Read(Opened opened, const std::string& path) {
  const Header& header = opened.header;
  std::vector<int64_t> shape = header.shape;
  if (header.fortran_order) std::reverse(shape.begin(), shape.end());
  MUSTER_ASSIGN_OR_RETURN(at::Tensor tensor, ReadArray(std::move(opened.source), path,
                                                       opened.header_bytes, shape, opened.type));
  if (opened.type == at::kBool) MUSTER_RETURN_IF_ERROR(CheckBools(tensor, path));
  if (!header.fortran_order) return tensor;
  std::vector<int64_t> reversed(shape.size());
  for (size_t i = 0; i < reversed.size(); ++i) reversed[i] = reversed.size() - 1 - i;
  return tensor.permute(reversed).contiguous();
}

// The array in the bytes of a whole file. REQUIRES: Mappable.
at::Tensor View(const Opened& opened, std::string_view bytes, std::shared_ptr<const void> owner) {
  return at::from_blob(
      const_cast<char*>(bytes.data()) + opened.header_bytes, opened.header.shape,
      [owner = std::move(owner)](void*) {}, at::TensorOptions(opened.type));
}

}  // namespace

absl::StatusOr<at::Tensor> ReadNpy(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(Opened opened, OpenNpy(path));
  return Read(std::move(opened), path);
}

absl::StatusOr<at::Tensor> MapNpy(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(Opened opened, OpenNpy(path));
  const auto item = static_cast<int64_t>(c10::elementSize(opened.type));
  // What is wrong with its size is said where it is read.
  if (!Mappable(opened) || opened.header_bytes % item != 0) return Read(std::move(opened), path);
  const absl::StatusOr<std::shared_ptr<const MappedFile>> file = MappedFile::Open(path);
  if (!file.ok()) return Read(std::move(opened), path);
  return View(opened, (*file)->bytes(), *file);
}

absl::StatusOr<at::Tensor> NpyInMemory(std::string_view bytes, std::shared_ptr<const void> owner,
                                       const std::string& name) {
  MUSTER_ASSIGN_OR_RETURN(Opened opened, OpenNpy(MemoryBytes(bytes), name));
  if (!Mappable(opened)) return Read(std::move(opened), name);
  return View(opened, bytes, std::move(owner));
}

}  // namespace muster::data
