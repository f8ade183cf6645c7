#include "common/exported/graph/source_line.h"

#include <fmt/format.h>

#include <sstream>
#include <vector>

namespace muster::exported {
namespace {

struct Place {
  std::string file, rest, code;
};

std::string Trimmed(const std::string& line) {
  const size_t begin = line.find_first_not_of(" \t\r"), end = line.find_last_not_of(" \t\r");
  return begin == std::string::npos ? "" : line.substr(begin, end - begin + 1);
}

// Parses a Python traceback: lines `File "PATH", line N, in NAME`, each followed by lines of code.
std::vector<Place> Places(const std::string& trace) {
  constexpr std::string_view kFile = "File \"";
  std::vector<Place> places;
  std::istringstream lines(trace);
  std::string line;
  while (std::getline(lines, line)) {
    line = Trimmed(line);
    if (line.starts_with(kFile)) {
      const size_t end = line.find('"', kFile.size());
      if (end == std::string::npos) continue;
      places.push_back({line.substr(kFile.size(), end - kFile.size()), line.substr(end + 1), ""});
    } else if (!places.empty() && places.back().code.empty() &&
               line.find_first_not_of("^~ ") != std::string::npos) {
      places.back().code = line;
    }
  }
  return places;
}

bool IsPyTorch(const std::string& file) {
  return file.find("/site-packages/torch/") != std::string::npos ||
         file.find("/dist-packages/torch/") != std::string::npos || file.starts_with("torch/") ||
         file.starts_with("<");
}

}  // namespace

std::string SourceLine(const Json& metadata) {
  if (!metadata.is_object() || !metadata.contains("stack_trace")) return "";
  if (!metadata["stack_trace"].is_string()) return "";
  const std::vector<Place> places = Places(metadata["stack_trace"].get<std::string>());
  const Place* best = nullptr;
  for (const Place& place : places) {
    if (!IsPyTorch(place.file)) best = &place;
  }
  if (best == nullptr && !places.empty()) best = &places.back();
  if (best == nullptr) return "";
  constexpr size_t kMaxCode = 120;
  std::string code = best->code;
  if (code.size() > kMaxCode) code = code.substr(0, kMaxCode) + "...";
  return fmt::format("{}{}{}{}", best->file, best->rest, code.empty() ? "" : ": ", code);
}

}  // namespace muster::exported
