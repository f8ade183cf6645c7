#include "common/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <unordered_set>

#include "common/base/files/crc32c.h"
#include "common/checkpoint/row_source.h"
#include "muster/json.h"

namespace muster::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxHeader = 100'000'000;  // The limit of the format.
constexpr int64_t kReadPiece = 1 << 20;
constexpr std::string_view kMetadata = "__metadata__";

// Quotes any text safely for messages.
std::string Quoted(const std::string& name) { return Dump(Json(name)); }

// Builds the header from the parser's SAX events. The first error ends the parsing.
class HeaderParser : public nlohmann::json_sax<Json> {
 public:
  using Entry = SafetensorsHeader::Entry;

  HeaderParser(SafetensorsHeader* header, bool foreign) : header_(header), foreign_(foreign) {}
  const std::string& error() const { return error_; }

  bool start_object(size_t) override {
    if (place_ == Place::kStart) return Go(Place::kTop);
    if (place_ == Place::kValueOfTop) {
      if (name_ == kMetadata) return Go(Place::kMetadata);
      entry_ = {};
      entry_.name = name_;
      seen_ = {};
      return Go(Place::kTensor);
    }
    return Unexpected("an object");
  }
  bool key(string_t& key) override {
    if (place_ == Place::kTop) {
      name_ = key;
      if (!names_.insert(key).second) return Fail(fmt::format("{} comes twice", Quoted(key)));
      return Go(Place::kValueOfTop);
    }
    field_ = key;
    if (place_ == Place::kMetadata) return Go(Place::kValueOfMetadata);
    const auto* known = std::find(std::begin(kFields), std::end(kFields), key);
    if (known == std::end(kFields)) {
      return Fail(fmt::format("tensor {} has a key {}", Quoted(name_), Quoted(key)));
    }
    bool& seen = seen_[known - kFields];
    if (seen) return Fail(fmt::format("tensor {} has {} twice", Quoted(name_), key));
    seen = true;
    return Go(Place::kValueOfTensor);
  }
  bool end_object() override {
    if (place_ == Place::kTop) return Go(Place::kEnd);
    if (place_ == Place::kTensor && !FinishTensor()) return false;
    return Go(Place::kTop);
  }
  bool start_array(size_t) override {
    if (place_ != Place::kValueOfTensor || field_ == "dtype") return Unexpected("a list");
    numbers_.clear();
    return Go(Place::kNumbers);
  }
  bool end_array() override {
    if (field_ == "shape") {
      entry_.shape = numbers_;
    } else {
      if (numbers_.size() != 2) return Fail(fmt::format("{} must be two numbers", Field()));
      entry_.begin = numbers_[0];
      entry_.end = numbers_[1];
    }
    return Go(Place::kTensor);
  }
  bool string(string_t& value) override {
    if (place_ == Place::kValueOfMetadata) {
      header_->metadata[field_] = value;
      return Go(Place::kMetadata);
    }
    if (place_ != Place::kValueOfTensor || field_ != "dtype") return Unexpected("a string");
    const auto* type = std::find(std::begin(kDTypeNames), std::end(kDTypeNames), value);
    if (type == std::end(kDTypeNames)) {
      if (foreign_) {
        entry_.foreign = value;
        return Go(Place::kTensor);
      }
      return Fail(fmt::format("tensor {} has the type {}, which this version does not know",
                              Quoted(name_), Quoted(value)));
    }
    entry_.dtype = static_cast<DType>(type - kDTypeNames);
    return Go(Place::kTensor);
  }
  bool number_unsigned(uint64_t value) override {
    if (place_ != Place::kNumbers) return Unexpected("a number");
    if (value > static_cast<uint64_t>(INT64_MAX)) return Fail(Field() + " is too large");
    numbers_.push_back(static_cast<int64_t>(value));
    return true;
  }
  bool number_integer(int64_t) override { return Unexpected("a negative number"); }
  bool number_float(double, const string_t&) override { return Unexpected("a fraction"); }
  bool boolean(bool) override { return Unexpected("true or false"); }
  bool null() override { return Unexpected("null"); }
  bool binary(binary_t&) override { return Unexpected("binary data"); }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    return Fail(fmt::format("it is not valid JSON at byte {}", position));
  }

 private:
  enum class Place {
    kStart,
    kTop,
    kValueOfTop,
    kMetadata,
    kValueOfMetadata,
    kTensor,
    kValueOfTensor,
    kNumbers,
    kEnd
  };
  static constexpr std::string_view kFields[] = {"dtype", "shape", "data_offsets"};

  bool Go(Place place) {
    place_ = place;
    return true;
  }
  bool Fail(std::string error) {
    error_ = std::move(error);
    return false;
  }
  std::string Field() const { return fmt::format("{} of tensor {}", field_, Quoted(name_)); }
  bool Unexpected(std::string_view what) {
    switch (place_) {
      case Place::kStart:
        return Fail(fmt::format("it is {}, not an object", what));
      case Place::kValueOfTop:
        return Fail(fmt::format("{} is {}, not an object", Quoted(name_), what));
      case Place::kValueOfMetadata:
        return Fail(fmt::format("{} in the metadata is {}, not a string", Quoted(field_), what));
      default:
        return Fail(fmt::format("{} holds {}", Field(), what));
    }
  }
  bool FinishTensor() {
    for (int i = 0; i < 3; ++i) {
      if (!seen_[i]) return Fail(fmt::format("tensor {} has no {}", Quoted(name_), kFields[i]));
    }
    // The size of the elements is unknown, too.
    if (!entry_.foreign.empty()) {
      if (entry_.end < entry_.begin)
        return Fail(
            fmt::format("tensor {} lies at {} to {}", Quoted(name_), entry_.begin, entry_.end));
      header_->tensors.push_back(std::move(entry_));
      return true;
    }
    int64_t bytes = kDTypeBytes[static_cast<int>(entry_.dtype)];
    bool overflow = false, empty = false;
    for (const int64_t d : entry_.shape) {
      // If a dimension is 0, products of the other dimensions must not overflow either.
      empty |= d == 0;
      overflow |= __builtin_mul_overflow(bytes, std::max<int64_t>(d, 1), &bytes);
    }
    if (empty) bytes = 0;
    if (overflow) {
      return Fail(fmt::format("the shape of tensor {} is too large", Quoted(name_)));
    }
    if (entry_.end < entry_.begin || entry_.end - entry_.begin != bytes) {
      return Fail(fmt::format("tensor {} lies at {} to {}, but needs {} bytes", Quoted(name_),
                              entry_.begin, entry_.end, bytes));
    }
    header_->tensors.push_back(std::move(entry_));
    return true;
  }

  SafetensorsHeader* const header_;
  const bool foreign_;
  std::string error_;
  Place place_ = Place::kStart;
  std::unordered_set<std::string> names_;
  std::string name_, field_;  // The current tensor and the key in its object.
  Entry entry_;
  std::array<bool, 3> seen_ = {};
  std::vector<int64_t> numbers_;
};

// Checks the positions of all tensors in the order of the data, and reports the first wrong one.
absl::Status CheckPlaces(const SafetensorsHeader& header, int64_t data_bytes) {
  std::vector<const SafetensorsHeader::Entry*> order;
  for (const auto& entry : header.tensors) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  int64_t end = 0;
  for (const auto* entry : order) {
    if (entry->begin != end) {
      return DataError(fmt::format(
          "its header is wrong: tensor {} {} at byte {} of the data", Quoted(entry->name),
          entry->begin < end ? "overlaps another" : "leaves a hole before it", entry->begin));
    }
    end = entry->end;
    // Compared before the next addition, which could overflow otherwise.
    if (end > data_bytes) {
      return DataError(fmt::format("tensor {} ends at byte {} of the data, which has {}",
                                   Quoted(entry->name), end, data_bytes));
    }
  }
  if (end != data_bytes) {
    return DataError(
        fmt::format("its tensors end at byte {} of the data, which has {}", end, data_bytes));
  }
  return absl::OkStatus();
}

// Returns the length of the header and the header, as they are in the file.
absl::StatusOr<std::string> EncodeHeader(const std::vector<TensorInfo>& tensors,
                                         const std::vector<int64_t>& begins, const Metadata& more) {
  std::unordered_set<std::string_view> names;
  std::string json = fmt::format(R"({{"{}":{{"format":"pt")", kMetadata);
  for (const auto& [name, value] : more)
    json += fmt::format(",{}:{}", Quoted(name), Dump(Json(value)));
  json += '}';
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& tensor = tensors[i];
    if (tensor.name.empty() || tensor.name == kMetadata || !names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          fmt::format("a tensor's name must be unique and not empty or {}: {}", kMetadata,
                      Quoted(tensor.name)));
    }
    if (std::any_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t d) { return d < 0; })) {
      return absl::InvalidArgumentError(
          fmt::format("tensor {} has a negative dimension", Quoted(tensor.name)));
    }
    std::string name;
    try {
      name = Json(tensor.name).dump();
    } catch (const Json::exception&) {
      return absl::InvalidArgumentError(
          fmt::format("the name of tensor {} is not UTF-8", Quoted(tensor.name)));
    }
    json += fmt::format(R"(,{}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name,
                        kDTypeNames[static_cast<int>(tensor.dtype)], Json(tensor.shape).dump(),
                        begins[i], begins[i] + static_cast<int64_t>(tensor.bytes()));
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (json.size() > static_cast<size_t>(kMaxHeader)) {
    return absl::InvalidArgumentError(
        fmt::format("{} tensors are too many for a safetensors header", tensors.size()));
  }
  const uint64_t length = json.size();
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + json;
}

// Reads the bytes before the data.
absl::StatusOr<std::string> ReadHead(const ReadableFile& file) {
  if (file.size() < kLengthBytes) {
    return DataError(fmt::format("it has {} bytes, too few for safetensors", file.size()));
  }
  uint64_t length = 0;
  MUSTER_RETURN_IF_ERROR(file.ReadAt(0, sizeof length, reinterpret_cast<char*>(&length)));
  if (length > static_cast<uint64_t>(std::min(kMaxHeader, file.size() - kLengthBytes))) {
    return DataError(
        fmt::format("its header is said to have {} bytes, the file has {}", length, file.size()));
  }
  std::string head(kLengthBytes + length, '\0');
  MUSTER_RETURN_IF_ERROR(file.ReadAt(0, head.size(), head.data()));
  return head;
}

absl::StatusOr<SafetensorsHeader> ParseHead(const std::string& head, int64_t file_bytes,
                                            bool foreign = false) {
  const int64_t offset = static_cast<int64_t>(head.size());
  MUSTER_ASSIGN_OR_RETURN(SafetensorsHeader header,
                          ParseSafetensorsHeader(std::string_view(head).substr(kLengthBytes),
                                                 file_bytes - offset, foreign));
  header.data_offset = offset;
  return header;
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, int64_t data_bytes,
                                                         bool foreign) {
  if (!json.starts_with('{')) return DataError("its header does not begin with {");
  SafetensorsHeader header;
  HeaderParser parser(&header, foreign);
  if (!Json::sax_parse(json, &parser) || !parser.error().empty()) {
    return DataError(fmt::format("its header is wrong: {}", parser.error()));
  }
  MUSTER_RETURN_IF_ERROR(CheckPlaces(header, data_bytes));
  return header;
}

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const ReadableFile& file) {
  MUSTER_ASSIGN_OR_RETURN(const std::string head, ReadHead(file));
  return ParseHead(head, file.size());
}

absl::StatusOr<TensorSet> ReadSafetensors(const ReadableFile& file, uint32_t* crc,
                                          ForeignTensors* foreign, Metadata* metadata) {
  MUSTER_ASSIGN_OR_RETURN(const std::string head, ReadHead(file));
  MUSTER_ASSIGN_OR_RETURN(SafetensorsHeader header,
                          ParseHead(head, file.size(), foreign != nullptr));
  if (metadata != nullptr) *metadata = header.metadata;
  const int64_t bytes = file.size() - header.data_offset;
  char* const data = static_cast<char*>(std::aligned_alloc(64, (bytes + 64) / 64 * 64));
  if (data == nullptr) {
    return absl::ResourceExhaustedError(fmt::format("no memory for {} bytes of tensors", bytes));
  }
  TensorSet set;
  set.memory = std::shared_ptr<const void>(data, std::free);
  *crc = Crc32c(head);
  for (int64_t at = 0; at < bytes; at += kReadPiece) {
    const size_t size = std::min(kReadPiece, bytes - at);
    MUSTER_RETURN_IF_ERROR(file.ReadAt(header.data_offset + at, size, data + at));
    *crc = ExtendCrc32c(*crc, {data + at, size});
  }
  for (SafetensorsHeader::Entry& entry : header.tensors) {
    if (!entry.foreign.empty()) {
      foreign->emplace(std::move(entry.name), std::move(entry.foreign));
      continue;
    }
    set.tensors.push_back({std::move(static_cast<TensorInfo&>(entry)), data + entry.begin});
  }
  return set;
}

absl::StatusOr<SafetensorsPlan> PlanSafetensors(const std::vector<TensorInfo>& tensors,
                                                const Metadata& more) {
  SafetensorsPlan plan;
  // Tensors of wide types come first, so each tensor is aligned to its type. The format allows no
  // holes for alignment.
  plan.order.resize(tensors.size());
  std::iota(plan.order.begin(), plan.order.end(), 0);
  std::stable_sort(plan.order.begin(), plan.order.end(), [&tensors](size_t a, size_t b) {
    const auto width = [&](size_t i) { return kDTypeBytes[static_cast<int>(tensors[i].dtype)]; };
    return width(a) > width(b);
  });
  std::vector<int64_t> begins(tensors.size());
  for (const size_t i : plan.order) {
    begins[i] = plan.bytes;
    plan.bytes += static_cast<int64_t>(tensors[i].bytes());
  }
  MUSTER_ASSIGN_OR_RETURN(plan.head, EncodeHeader(tensors, begins, more));
  plan.bytes += static_cast<int64_t>(plan.head.size());
  return plan;
}

absl::Status WriteSafetensors(const TensorSet& set,
                              const std::function<absl::Status(std::string_view)>& append,
                              const Metadata& more) {
  const std::vector<TensorInfo> tensors(set.tensors.begin(), set.tensors.end());
  MUSTER_ASSIGN_OR_RETURN(const SafetensorsPlan plan, PlanSafetensors(tensors, more));
  MUSTER_RETURN_IF_ERROR(append(plan.head));
  std::string piece;
  for (const size_t i : plan.order) {
    const Tensor& tensor = set.tensors[i];
    const auto bytes = static_cast<int64_t>(tensor.bytes());
    if (tensor.data != nullptr) MUSTER_RETURN_IF_ERROR(append({tensor.data, tensor.bytes()}));
    for (int64_t at = 0; tensor.data == nullptr && at < bytes; at += kReadPiece) {
      piece.resize(std::min(kReadPiece, bytes - at));
      MUSTER_RETURN_IF_ERROR(
          ReadTensor(set, tensor, at, static_cast<int64_t>(piece.size()), piece.data()));
      MUSTER_RETURN_IF_ERROR(append(piece));
    }
  }
  return absl::OkStatus();
}

}  // namespace muster::checkpoint
