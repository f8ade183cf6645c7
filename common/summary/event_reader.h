// Reads folders of TensorBoard event files. A restarted writer needs the last step of a folder, and
// reports need the curves and pictures. These functions read a damaged file up to its first damaged
// record.
//
// Every event file of Muster begins with a SessionLog START event. The event's step is the first
// step that the writer of the file trains. All values of this step and of later steps in older
// files are *void*, because the writer trains these steps again.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <string>
#include <vector>

namespace muster::summary {

// Returns the highest step with a value of `tag` in the event files of `directory`, or -1 if no
// step has a value. Ignores void values and unreadable files.
int64_t LastStepOf(const std::string& directory, const std::string& tag);

struct Point {
  int64_t step = 0;
  double wall = 0;   // Time in seconds since 1970, by the writer's clock.
  double value = 0;  // May be NaN or infinite.
};

// The pictures of one tag at one step.
struct PictureSet {
  int64_t step = 0;
  int64_t width = 0, height = 0;
  std::vector<std::string> files;  // The encoded pictures, such as PNG files. They may be invalid.
};

// A SessionLog START event.
struct WriterStart {
  // The end of the event file's name: "<host>.<pid>.<random>", or "<host>.<pid>" for files of older
  // versions.
  std::string writer;
  int64_t step = 0;
  double wall = 0;  // Time in seconds since 1970.
};

struct WriterFile {
  std::string name;    // Name of the event file, without its folder.
  std::string writer;  // The same as WriterStart::writer.
  // Times of the file's first and last event, in seconds since 1970. 0 if the file has no events.
  double first = 0, last = 0;
  int64_t unread_bytes = 0;  // Bytes after the last valid record. 0 if all records are valid.
};

struct RunContent {
  std::map<std::string, std::vector<Point>> scalars;  // Keyed by tag. Without void points.
  // Keyed by tag. Each value has the pictures of the newest step that is not void.
  std::map<std::string, PictureSet> pictures;
  std::vector<WriterStart> starts;
  std::vector<WriterFile> files;  // The oldest file first.
};

// Returns true if `directory` has at least one event file.
bool HasEvents(const std::string& directory);

// Reads all event files of `directory`. Returns an empty RunContent if there are no files.
RunContent ReadRun(const std::string& directory);

// Adds the events of one file to `*content`, up to the first damaged record of the file. Sets all
// fields of `*file` except `name` and `writer`. REQUIRES: `stream` is at its beginning and can
// seek.
void AddEvents(std::istream* stream, WriterFile* file, RunContent* content);

}  // namespace muster::summary
