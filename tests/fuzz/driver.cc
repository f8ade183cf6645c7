// Runs a fuzz target without libFuzzer, so that `make test` needs no second build of the tree: each
// file of a corpus, and then inputs that are made of them by random changes, the same ones each
// time.
//
//   fuzz_NAME [-runs=N] FOLDER...
//
// An input that ends the process is left in ./crash-input.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace {

constexpr size_t kLongest = 1 << 16;

std::vector<std::string> Read(const std::vector<std::string>& folders) {
  std::vector<std::filesystem::path> files;
  for (const std::string& folder : folders)
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> inputs;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

class Mutator {
 public:
  explicit Mutator(std::vector<std::string> corpus) : corpus_(std::move(corpus)) {}

  std::string Next() {
    std::string input = corpus_[Below(corpus_.size())];
    for (size_t i = 0, changes = 1 + Below(4); i < changes; ++i) Change(&input);
    input.resize(std::min(input.size(), kLongest));
    return input;
  }

 private:
  size_t Below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  void Change(std::string* input) {
    static constexpr uint64_t kNumbers[] = {
        0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0xffffffff, 1ull << 62, ~0ull >> 1, ~0ull};
    const size_t at = Below(input->size()), length = Below(std::min<size_t>(input->size(), 32));
    switch (Below(7)) {
      case 0:
        if (!input->empty()) (*input)[at] ^= static_cast<char>(1 << Below(8));
        return;
      case 1:
        if (!input->empty()) (*input)[at] = static_cast<char>(random_());
        return;
      case 2:
        input->erase(at, length);
        return;
      case 3:
        input->insert(at, input->substr(Below(input->size()), length));
        return;
      case 4: {
        const uint64_t number = kNumbers[Below(std::size(kNumbers))];
        const size_t width = size_t{1} << Below(4);
        if (input->size() >= at + width) std::memcpy(input->data() + at, &number, width);
        return;
      }
      case 5:
        input->resize(at);
        return;
      default: {
        const std::string& other = corpus_[Below(corpus_.size())];
        *input = input->substr(0, at) + other.substr(Below(other.size()));
      }
    }
  }

  const std::vector<std::string> corpus_;
  std::minstd_rand random_{7};
};

void Run(const std::string& input) {
  // Left behind where the target does not come back.
  std::ofstream("crash-input", std::ios::binary) << input;
  // At the end of its own memory, where a sanitizer sees what reads beyond.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

int Main(int argc, char** argv) {
  size_t runs = 0;
  std::vector<std::string> folders;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("-runs="))
      runs = std::stoul(argument.substr(6));
    else if (!argument.starts_with("-"))
      folders.push_back(argument);
  }
  const std::vector<std::string> corpus = Read(folders);
  if (corpus.empty()) {
    std::cerr << "there is no corpus\n";
    return 1;
  }
  for (const std::string& input : corpus) Run(input);
  Mutator mutator(corpus);
  for (size_t i = 0; i < runs; ++i) Run(mutator.Next());
  std::filesystem::remove("crash-input");
  std::cout << "Done " << corpus.size() + runs << " runs\n";
  return 0;
}

}  // namespace
}  // namespace muster::fuzz

int main(int argc, char** argv) { return muster::fuzz::Main(argc, argv); }
