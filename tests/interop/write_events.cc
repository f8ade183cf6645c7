// Writes what tensorboard_test.py expects: write_events FOLDER
#include <cmath>
#include <iostream>
#include <string>

#include "common/summary/event_writer.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  using muster::summary::EventWriter;
  // A run that was lost after step 40 and continued from step 20 in a second file.
  for (const int start : {1, 21}) {
    auto writer = EventWriter::Open(std::string(argv[1]) + "/train", {.first_step = start});
    if (!writer.ok()) {
      std::cerr << muster::Message(writer.status()) << '\n';
      return 1;
    }
    absl::Status status;
    const int end = start == 1 ? 40 : 60;
    for (int step = start; step <= end && status.ok(); ++step) {
      const double loss = start == 1 && step > 20 ? -1 : 1.0 / step;
      status = (*writer)->Scalars(step, {{"loss", loss}, {"näme/with slash", std::sqrt(step)}});
    }
    if (status.ok()) status = (*writer)->Scalars(end + 1, {{"loss", std::nan("")}});
    if (status.ok()) status = (*writer)->Flush();
    if (!status.ok()) return 1;
  }
  return 0;
}
