// Exported programs: an archive of torch.export.save with any JSON and any bytes in it, read and
// compiled. It is not run: its operators are LibTorch's, and do what they are there for.
#include <zlib.h>

#include <utility>
#include <vector>

#include "common/exported/graph/archive.h"
#include "common/exported/graph/model.h"
#include "tests/fuzz/fuzz.h"

namespace muster {
namespace {

template <typename T>
void Put(T number, std::string* to) {
  to->append(reinterpret_cast<const char*>(&number), sizeof number);
}

// A zip archive of stored members, whose checksums are right.
std::string Zip(const std::vector<std::pair<std::string, std::string_view>>& members) {
  std::string file, directory;
  for (const auto& [name, bytes] : members) {
    const std::string path = "it/" + name;
    const auto size = static_cast<uint32_t>(bytes.size()),
               begin = static_cast<uint32_t>(file.size());
    const auto crc = static_cast<uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(size)));
    std::string entry;  // what both headers have
    for (const uint16_t number : {0, 0, 0, 0, 0}) Put(number, &entry);
    for (const uint32_t number : {crc, size, size}) Put(number, &entry);
    Put(static_cast<uint16_t>(path.size()), &entry);
    Put(uint16_t{0}, &entry);
    file += "PK\3\4" + entry + path;
    file += bytes;
    directory += std::string("PK\1\2") + std::string(2, '\0') + entry + std::string(10, '\0');
    Put(begin, &directory);
    directory += path;
  }
  const auto count = static_cast<uint16_t>(members.size());
  const auto begin = static_cast<uint32_t>(file.size());
  file += directory + "PK\5\6" + std::string(4, '\0');
  for (const uint16_t number : {count, count}) Put(number, &file);
  for (const uint32_t number : {static_cast<uint32_t>(directory.size()), begin}) Put(number, &file);
  return file + std::string(2, '\0');
}

void Compile(const exported::Archive& archive) {
  const auto model = exported::Model::Make(archive, c10::kCPU);
  if (!model.ok()) return;
  const exported::Range batch = (*model)->shapes().batch();
  fuzz::Require(batch.least >= 1 && batch.least <= batch.most, "some batch fits");
  for (size_t output = 0; output < (*model)->output_count(); ++output)
    if ((*model)->CheckOutput(output).ok()) (void)(*model)->CheckTrained(output);
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  fuzz::Bytes bytes(data, size);
  const std::string_view program = bytes.Piece(), weights = bytes.Piece(),
                         constants = bytes.Piece();
  std::vector<std::pair<std::string, std::string_view>> members = {
      {"models/model.json", program},
      {"data/weights/model_weights_config.json", weights},
      {"data/constants/model_constants_config.json", constants}};
  for (const char* file :
       {"weights/weight_0", "weights/weight_1", "weights/weight_2", "weights/weight_3",
        "weights/weight_4", "weights/weight_5", "weights/weight_6", "constants/tensor_0"})
    members.emplace_back(std::string("data/") + file, bytes.Rest());
  const fuzz::MemoryFile file(Zip(members));
  const auto archive = exported::ReadArchive(file.path(), "");
  if (!archive.ok()) return 0;
  fuzz::Require(archive->weights.size() == archive->weight_payloads.size(), "all weights are read");
  Compile(*archive);
  return 0;
}
