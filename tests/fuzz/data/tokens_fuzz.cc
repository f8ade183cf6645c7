// Files of tokens, and the windows of them that a job asks for.
#include "common/data/files/token_file.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  fuzz::Bytes bytes(data, size);
  constexpr const char* kTypes[] = {"uint8", "uint16", "uint32"};
  const auto flags = bytes.Take<uint8_t>();
  data::WindowOptions options;
  options.dtype = kTypes[flags % 3];
  options.targets = (flags & 128) != 0;
  options.length = bytes.Take<int64_t>();
  options.stride = bytes.Take<int64_t>();
  if (options.length < 1 || options.stride < 1) return 0;  // the job's reader refuses these
  const fuzz::MemoryFile file(bytes.Rest());
  const auto tokens = data::TokenFile::Open(file.path(), options, "");
  if (!tokens.ok()) return 0;
  const int64_t windows = (*tokens)->windows();
  fuzz::Require(windows > 0 && windows <= static_cast<int64_t>(bytes.Rest().size()),
                "windows begin at tokens of the file");
  std::vector<int64_t> numbers(static_cast<size_t>(options.length));
  for (const int64_t window : {int64_t{0}, windows / 2, windows - 1})
    for (int64_t shift = 0; shift <= (options.targets ? 1 : 0); ++shift)
      (*tokens)->Read(window, shift, numbers.data());
  return 0;
}
