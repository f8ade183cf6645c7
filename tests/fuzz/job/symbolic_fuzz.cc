// The arithmetic on sizes of exported programs.
#include <c10/util/Exception.h>

#include "common/exported/graph/symbolic.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  fuzz::Bytes bytes(data, size);
  const exported::Symbolic symbolic =
      exported::FindSymbolic(std::string(bytes.Piece().substr(0, 64)));
  if (symbolic.function == nullptr) return 0;
  std::vector<c10::IValue> operands;
  for (size_t i = 0; i < symbolic.operands; ++i) {
    const auto kind = bytes.Take<uint8_t>();
    if (kind == 0) operands.emplace_back(bytes.Take<double>());
    if (kind == 1) operands.emplace_back(bytes.Take<uint8_t>() != 0);
    if (kind == 2) operands.emplace_back();
    if (kind > 2) operands.emplace_back(bytes.Take<int64_t>());
  }
  try {
    (void)symbolic.function(operands);
  } catch (const c10::Error&) {
  }
  return 0;
}
