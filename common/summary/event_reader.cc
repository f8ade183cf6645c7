#include "common/summary/event_reader.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "common/base/files/record.h"
#include "common/summary/event_writer.h"
#include "proto/event.pb.h"

namespace muster::summary {
namespace {

// Returns the event files in the order of their names, which is the order of time.
std::vector<std::filesystem::path> EventFiles(const std::string& directory) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  auto entries = std::filesystem::directory_iterator(directory, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    std::error_code unknown;
    // Opening a pipe would block.
    if (entries->path().filename().string().starts_with(kEventFilePrefix) &&
        entries->is_regular_file(unknown))
      files.push_back(entries->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool IsStart(const Event& event) {
  return event.has_session_log() && event.session_log().status() == SessionLog::START;
}

void Take(const Event& event, const std::string& tag, std::set<int64_t>* steps) {
  if (IsStart(event)) steps->erase(steps->lower_bound(event.step()), steps->end());
  for (const Summary::Value& value : event.summary().value())
    if (value.tag() == tag) steps->insert(event.step());
}

// Returns "<host>.<pid>.<random>" of "events.out.tfevents.<seconds>.<host>.<pid>.<random>".
std::string WriterOf(const std::string& name) {
  const size_t dot = name.find('.', kEventFilePrefix.size());
  return dot == std::string::npos ? "" : name.substr(dot + 1);
}

void TakePictures(const Event& event, const Summary::Value& value, RunContent* content) {
  const Tensor& tensor = value.tensor();
  // The width, the height, and one file for each picture.
  if (value.metadata().plugin_data().plugin_name() != "images" || tensor.string_val_size() < 3)
    return;
  PictureSet& set = content->pictures[value.tag()];
  set.step = event.step();
  set.width = std::atoll(tensor.string_val(0).c_str());
  set.height = std::atoll(tensor.string_val(1).c_str());
  set.files.assign(tensor.string_val().begin() + 2, tensor.string_val().end());
}

// Erases the points and pictures of `step` and later steps.
void EraseFrom(int64_t step, RunContent* content) {
  for (auto& [tag, points] : content->scalars)
    std::erase_if(points, [&](const Point& point) { return point.step >= step; });
  std::erase_if(content->scalars, [](const auto& curve) { return curve.second.empty(); });
  std::erase_if(content->pictures, [&](const auto& set) { return set.second.step >= step; });
}

void TakeEvent(const Event& event, WriterFile* file, RunContent* content) {
  if (file->first == 0) file->first = event.wall_time();
  file->last = std::max(file->last, event.wall_time());
  if (IsStart(event)) {
    EraseFrom(event.step(), content);
    content->starts.push_back({file->writer, event.step(), event.wall_time()});
  }
  for (const Summary::Value& value : event.summary().value()) {
    if (value.value_case() == Summary::Value::kSimpleValue) {
      content->scalars[value.tag()].push_back(
          {event.step(), event.wall_time(), value.simple_value()});
    } else if (value.has_tensor()) {
      TakePictures(event, value, content);
    }
  }
}

}  // namespace

int64_t LastStepOf(const std::string& directory, const std::string& tag) {
  std::set<int64_t> steps;
  for (const auto& path : EventFiles(directory)) {
    std::ifstream file(path, std::ios::binary);
    std::string record;
    Event event;
    while (ReadRecord(&file, &record) && event.ParseFromString(record)) Take(event, tag, &steps);
  }
  return steps.empty() ? -1 : *steps.rbegin();
}

bool HasEvents(const std::string& directory) { return !EventFiles(directory).empty(); }

void AddEvents(std::istream* stream, WriterFile* file, RunContent* content) {
  std::string record;
  Event event;
  std::streamoff whole = 0;
  while (ReadRecord(stream, &record) && event.ParseFromString(record)) {
    whole = stream->tellg();
    TakeEvent(event, file, content);
  }
  stream->clear();
  stream->seekg(0, std::ios::end);
  file->unread_bytes = std::max<std::streamoff>(stream->tellg() - whole, 0);
}

RunContent ReadRun(const std::string& directory) {
  RunContent content;
  for (const auto& path : EventFiles(directory)) {
    const std::string name = path.filename();
    WriterFile file{.name = name, .writer = WriterOf(name)};
    std::ifstream stream(path, std::ios::binary);
    if (stream) {
      AddEvents(&stream, &file, &content);
    } else {
      std::error_code error;
      file.unread_bytes = static_cast<int64_t>(std::filesystem::file_size(path, error));
    }
    content.files.push_back(std::move(file));
  }
  return content;
}

}  // namespace muster::summary
