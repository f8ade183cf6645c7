// Reads TensorBoard run folders: what a restarted writer needs, and the curves and pictures for
// reports. Damaged files are read up to their first damaged record.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <string>
#include <vector>

namespace muster::summary {

// Returns the last step with a value of `tag` in the event files of `directory`, or -1. Ignores
// values that a SessionLog START event invalidates. Reads each file up to its first damaged record.
// An unreadable file counts as empty.
int64_t LastStepOf(const std::string& directory, const std::string& tag);

struct Point {
  int64_t step = 0;
  double wall = 0;   // In seconds since 1970, by the writer's clock.
  double value = 0;  // May be NaN or infinite.
};

// The pictures of one tag at one step.
struct PictureSet {
  int64_t step = 0;
  int64_t width = 0, height = 0;
  std::vector<std::string> files;  // Each is an encoded picture. Not checked.
};

// A SessionLog START event: where a writer began, or where training continued after a loss.
struct WriterStart {
  std::string writer;  // "<host>.<pid>.<random>"; without the last part in older files.
  int64_t step = 0;    // Older points from this step on are void.
  double wall = 0;
};

struct WriterFile {
  std::string name;            // Of the file, without its folder.
  std::string writer;          // As WriterStart::writer.
  double first = 0, last = 0;  // The wall times of its first and last event. 0 if it has none.
  int64_t unread_bytes = 0;    // After the last whole record. 0 if the file is whole.
};

struct RunContent {
  std::map<std::string, std::vector<Point>> scalars;  // By tag. Without void points.
  std::map<std::string, PictureSet> pictures;  // By tag. Only the newest step that is not void.
  std::vector<WriterStart> starts;
  std::vector<WriterFile> files;  // In the order of time.
};

// Returns true if `directory` has at least one event file.
bool HasEvents(const std::string& directory);

// Reads all event files of `directory`. A folder without any gives an empty content.
RunContent ReadRun(const std::string& directory);

// Adds the events of one file, up to its first damaged record, to `*content`. Sets all fields of
// `*file` but the names. REQUIRES: `stream` is at its beginning and can seek.
void AddEvents(std::istream* stream, WriterFile* file, RunContent* content);

}  // namespace muster::summary
