// safetensors_io write MODEL_DIR: saves one checkpoint with a tensor of every type, whose element i
// is i - 3 (of BOOL: i is odd), a scalar and an empty one.
// safetensors_io read FILE: prints JSON, by name: type, shape and the bytes in hexadecimal.
#include <fmt/core.h>
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/store.h"
#include "muster/json.h"

namespace muster::checkpoint {
namespace {

// Small whole numbers, exactly, as IEEE half precision has them.
uint16_t Half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value == 0) return 0;
  const uint32_t exponent = ((bits >> 23) & 0xFF) - 127 + 15;
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3FF));
}

template <typename T>
void Put(std::string* bytes, T value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof value);
}

void PutElement(std::string* bytes, DType dtype, int i) {
  const int v = i - 3;
  switch (dtype) {
    case DType::kBool:
      return Put<uint8_t>(bytes, i % 2);
    case DType::kUInt8:
      return Put<uint8_t>(bytes, static_cast<uint8_t>(v));
    case DType::kInt8:
      return Put<int8_t>(bytes, static_cast<int8_t>(v));
    case DType::kInt16:
      return Put<int16_t>(bytes, static_cast<int16_t>(v));
    case DType::kInt32:
      return Put<int32_t>(bytes, v);
    case DType::kInt64:
      return Put<int64_t>(bytes, v);
    case DType::kFloat16:
      return Put<uint16_t>(bytes, Half(static_cast<float>(v)));
    case DType::kBFloat16:
      return Put<uint16_t>(
          bytes, static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(v)) >> 16));
    case DType::kFloat32:
      return Put<float>(bytes, static_cast<float>(v));
    case DType::kFloat64:
      return Put<double>(bytes, v);
  }
}

TensorSet EveryType() {
  std::vector<TensorInfo> infos;
  for (int i = 0; i < kNumDTypes; ++i) {
    infos.push_back({fmt::format("layer.{}", kDTypeNames[i]), static_cast<DType>(i), {3, 5}});
  }
  infos.push_back({"scalar", DType::kFloat32, {}});
  infos.push_back({"empty", DType::kInt64, {2, 0, 3}});
  const auto memory = std::make_shared<std::string>();
  std::vector<size_t> begins;
  for (const TensorInfo& info : infos) {
    begins.push_back(memory->size());
    for (int i = 0; i < info.elements(); ++i) PutElement(memory.get(), info.dtype, i);
  }
  TensorSet set;
  for (size_t i = 0; i < infos.size(); ++i) {
    set.tensors.push_back({infos[i], memory->data() + begins[i]});
  }
  set.memory = memory;
  return set;
}

absl::Status Write(const std::string& model_dir) {
  Snapshot snapshot;
  snapshot.state.step = 500;
  snapshot.state.job = {{"program", "linear"}};
  snapshot.model = EveryType();
  MUSTER_ASSIGN_OR_RETURN(
      const auto store,
      Store::Open(PosixFileSystem(), {model_dir + "/checkpoints", "interop", 3, {}}, -1));
  return store->Write(snapshot).status();
}

absl::Status Read(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const auto file, PosixFileSystem().Open(path));
  uint32_t crc = 0;
  MUSTER_ASSIGN_OR_RETURN(const TensorSet set, ReadSafetensors(*file, &crc));
  Json json = Json::object();
  for (const Tensor& tensor : set.tensors) {
    std::string hex;
    for (size_t i = 0; i < tensor.bytes(); ++i) {
      hex += fmt::format("{:02x}", static_cast<uint8_t>(tensor.data[i]));
    }
    json[tensor.name] = {{"dtype", kDTypeNames[static_cast<int>(tensor.dtype)]},
                         {"shape", tensor.shape},
                         {"bytes", hex}};
  }
  fmt::print("{}\n", json.dump());
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  if (argc != 3) return 2;
  const absl::Status status = std::string(argv[1]) == "write" ? Write(argv[2]) : Read(argv[2]);
  if (!status.ok()) fmt::print(stderr, "{}\n", Message(status));
  return static_cast<int>(ExitCodeOf(status));
}

}  // namespace
}  // namespace muster::checkpoint

int main(int argc, char** argv) { return muster::checkpoint::Main(argc, argv); }
