#include "common/summary/event_reader.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "common/base/files/record.h"
#include "proto/event.pb.h"

namespace muster::summary {
namespace {

void Take(const Event& event, const std::string& tag, std::set<int64_t>* steps) {
  if (event.has_session_log() && event.session_log().status() == SessionLog::START)
    steps->erase(steps->lower_bound(event.step()), steps->end());
  for (const Summary::Value& value : event.summary().value())
    if (value.tag() == tag) steps->insert(event.step());
}

}  // namespace

int64_t LastStepOf(const std::string& directory, const std::string& tag) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error))
    if (entry.path().filename().string().starts_with("events.out.tfevents."))
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());  // The names have the order of time.
  std::set<int64_t> steps;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    std::string record;
    Event event;
    while (ReadRecord(&file, &record) && event.ParseFromString(record)) Take(event, tag, &steps);
  }
  return steps.empty() ? -1 : *steps.rbegin();
}

}  // namespace muster::summary
