#include "common/checkpoint/row_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "common/checkpoint/safetensors.h"

namespace muster::checkpoint {
namespace {

int64_t RowBytes(const TensorInfo& info) {
  const int64_t rows = info.shape.empty() ? 1 : info.shape[0];
  return rows == 0 ? 0 : static_cast<int64_t>(info.bytes()) / rows;
}

class RowsOfFile final : public RowSource {
 public:
  RowsOfFile(std::unique_ptr<ReadableFile> file, const SafetensorsHeader& header)
      : file_(std::move(file)) {
    for (const SafetensorsHeader::Entry& entry : header.tensors) {
      tensors_.push_back(entry);
      begins_.push_back(header.data_offset + entry.begin);
    }
  }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  absl::Status ReadBytes(size_t tensor, int64_t begin, int64_t bytes, char* out) const override {
    return file_->ReadAt(begins_[tensor] + begin, static_cast<size_t>(bytes), out);
  }

 private:
  const std::unique_ptr<ReadableFile> file_;
  std::vector<TensorInfo> tensors_;
  std::vector<int64_t> begins_;  // The offset of each tensor in the file.
};

class RowsOfSets final : public RowSource {
 public:
  RowsOfSets(const TensorSet& model, const TensorSet& optimizer) : sets_{model, optimizer} {
    for (const TensorSet& set : sets_)
      for (const Tensor& tensor : set.tensors) tensors_.push_back(tensor);
  }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  absl::Status ReadBytes(size_t tensor, int64_t begin, int64_t bytes, char* out) const override {
    const size_t models = sets_[0].tensors.size();
    const TensorSet& set = sets_[tensor < models ? 0 : 1];
    return ReadTensor(set, set.tensors[tensor < models ? tensor : tensor - models], begin, bytes,
                      out);
  }

 private:
  const TensorSet sets_[2];
  std::vector<TensorInfo> tensors_;
};

struct TensorPart {
  const RowSource* source;
  size_t tensor;
};

// Returns whether type and shape are equal, apart from the number of rows.
bool SameKind(const TensorInfo& a, TensorInfo b) {
  if (a.shape.empty() != b.shape.empty()) return false;
  if (!a.shape.empty()) b.shape[0] = a.shape[0];
  return a.dtype == b.dtype && a.shape == b.shape;
}

// Adds `rows` rows to the tensor. Returns false if it would be too large. Tensors without bytes may
// have any number of rows.
bool AddRows(int64_t rows, TensorInfo* joined) {
  int64_t elements = kDTypeBytes[static_cast<int>(joined->dtype)];
  bool overflow = __builtin_add_overflow(joined->shape[0], rows, &joined->shape[0]);
  for (const int64_t d : joined->shape)
    overflow |= __builtin_mul_overflow(elements, std::max<int64_t>(d, 1), &elements);
  return !overflow;
}

// Concatenates the parts of a tensor into new memory.
absl::StatusOr<TensorInfo> JoinParts(const std::string& name, const std::vector<TensorPart>& parts,
                                     std::string* bytes) {
  TensorInfo joined = parts[0].source->tensors()[parts[0].tensor];
  for (const TensorPart& part : parts)
    if (!SameKind(joined, part.source->tensors()[part.tensor]))
      return DataError(fmt::format("\"{}\" has rows of another kind in another file", name));
  if (joined.shape.empty()) {
    if (joined.dtype != DType::kInt64)
      return DataError(fmt::format("\"{}\" is one {}, and must be an I64", name,
                                   kDTypeNames[static_cast<int>(joined.dtype)]));
    int64_t largest = 0;
    for (const TensorPart& part : parts) {
      int64_t value = 0;
      MUSTER_RETURN_IF_ERROR(part.source->Read(part.tensor, 0, 1, reinterpret_cast<char*>(&value)));
      largest = std::max(largest, value);
    }
    bytes->assign(reinterpret_cast<const char*>(&largest), sizeof largest);
    return joined;
  }
  joined.shape[0] = 0;
  for (const TensorPart& part : parts) {
    const int64_t rows = part.source->tensors()[part.tensor].shape[0];
    const size_t begin = bytes->size();
    if (!AddRows(rows, &joined))
      return DataError(fmt::format("\"{}\" has more rows than any tensor", name));
    bytes->resize(joined.bytes());
    MUSTER_RETURN_IF_ERROR(part.source->Read(part.tensor, 0, rows, bytes->data() + begin));
  }
  return joined;
}

}  // namespace

absl::Status RowSource::Read(size_t tensor, int64_t first, int64_t count, char* out) const {
  const int64_t bytes = RowBytes(tensors()[tensor]);
  return ReadBytes(tensor, first * bytes, count * bytes, out);
}

int RowSource::Find(std::string_view name) const {
  const auto found = std::find_if(tensors().begin(), tensors().end(),
                                  [name](const TensorInfo& info) { return info.name == name; });
  return found == tensors().end() ? -1 : static_cast<int>(found - tensors().begin());
}

absl::StatusOr<std::shared_ptr<const RowSource>> OpenRows(std::unique_ptr<ReadableFile> file) {
  MUSTER_ASSIGN_OR_RETURN(const SafetensorsHeader header, ReadSafetensorsHeader(*file));
  return std::make_shared<RowsOfFile>(std::move(file), header);
}

TensorSet TensorsOf(std::shared_ptr<const RowSource> file) {
  TensorSet set;
  for (const TensorInfo& info : file->tensors())
    set.tensors.push_back({info, nullptr, set.tensors.size()});
  set.file = std::move(file);
  return set;
}

absl::Status ReadTensor(const TensorSet& set, const Tensor& tensor, int64_t begin, int64_t bytes,
                        char* out) {
  if (bytes == 0) return absl::OkStatus();
  if (tensor.data == nullptr) return set.file->ReadBytes(tensor.in_file, begin, bytes, out);
  std::memcpy(out, tensor.data + begin, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

std::shared_ptr<const RowSource> RowsInMemory(const TensorSet& model, const TensorSet& optimizer) {
  return std::make_shared<RowsOfSets>(model, optimizer);
}

absl::Status JoinRows(const RowSources& sources, TensorSet* model, TensorSet* optimizer) {
  std::map<std::string, std::vector<TensorPart>> parts;
  for (const auto& source : sources)
    for (size_t t = 0; t < source->tensors().size(); ++t)
      parts[source->tensors()[t].name].push_back({source.get(), t});
  struct Memory {
    std::shared_ptr<const void> before[2];
    std::map<std::string, std::string> bytes;
  };
  const auto memory = std::make_shared<Memory>();
  memory->before[0] = model->memory;
  memory->before[1] = optimizer->memory;
  for (const auto& [name, of_name] : parts) {
    std::string& bytes = memory->bytes[name];
    MUSTER_ASSIGN_OR_RETURN(const TensorInfo info, JoinParts(name, of_name, &bytes));
    const bool of_model = name.ends_with(".keys") || name.ends_with(".rows");
    Tensor& tensor = (of_model ? model : optimizer)->tensors.emplace_back();
    static_cast<TensorInfo&>(tensor) = info;
    tensor.data = bytes.data();
  }
  model->memory = optimizer->memory = memory;
  return absl::OkStatus();
}

}  // namespace muster::checkpoint
