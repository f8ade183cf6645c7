#include "common/summary/last_scalars.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "common/base/files/record.h"
#include "proto/event.pb.h"

namespace muster::summary {
namespace {

using Curves = std::map<std::string, std::map<int64_t, double>>;

void Take(const Event& event, Curves* curves) {
  if (event.has_session_log() && event.session_log().status() == SessionLog::START)
    for (auto& [tag, curve] : *curves) curve.erase(curve.lower_bound(event.step()), curve.end());
  for (const Summary::Value& value : event.summary().value())
    if (value.value_case() == Summary::Value::kSimpleValue)
      (*curves)[value.tag()][event.step()] = value.simple_value();
}

}  // namespace

std::map<std::string, LastScalar> LastScalarsOf(const std::string& directory) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    std::error_code unknown;
    // Opening a pipe would block.
    if (entry.path().filename().string().starts_with("events.out.tfevents.") &&
        entry.is_regular_file(unknown))
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());  // The names have the order of time.
  Curves curves;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    std::string record;
    Event event;
    while (ReadRecord(&file, &record) && event.ParseFromString(record)) Take(event, &curves);
  }
  std::map<std::string, LastScalar> last;
  for (const auto& [tag, curve] : curves)
    if (!curve.empty()) last[tag] = {curve.rbegin()->first, curve.rbegin()->second};
  return last;
}

}  // namespace muster::summary
