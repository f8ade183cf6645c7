// Writes what tensorboard_test.py expects: write_events FOLDER
#include <cmath>
#include <iostream>
#include <limits>
#include <string>

#include "common/summary/event_writer.h"

namespace {

using muster::summary::DistributionOf;
using muster::summary::EventWriter;

// `lost`: what must not be shown.
absl::Status WriteOthers(EventWriter* writer, int64_t step, bool lost) {
  MUSTER_RETURN_IF_ERROR(
      writer->Text(step, "job", lost ? "lost" : "| a | b |\n|---|--:|\n| ä | 1 |\n"));
  for (const auto& [tag, channels] : {std::pair("gray", 1), {"rgb", 3}, {"rgba", 4}}) {
    std::vector<uint8_t> pixels;
    for (int i = 0; i < 2 * 5 * 7 * channels; ++i)
      pixels.push_back(lost ? 0 : (i * 37 + step) % 256);
    MUSTER_RETURN_IF_ERROR(writer->Images(step, tag, {2, 5, 7, channels, pixels}));
  }
  std::vector<double> values;
  for (int i = 0; i < (lost ? 10 : 1000); ++i)
    values.push_back((i - 500 + static_cast<double>(step)) / 64);
  values.push_back(std::nan(""));
  values.push_back(std::numeric_limits<double>::infinity());
  MUSTER_RETURN_IF_ERROR(writer->Histogram(step, "weights", DistributionOf(values)));
  MUSTER_RETURN_IF_ERROR(writer->Histogram(step, "zeros", DistributionOf({0, 0, 0})));
  return writer->Histogram(step, "nothing", DistributionOf({}));
}

// A run that was lost after step 40 and continued from step 20 in a second file.
absl::Status WriteRun(const std::string& folder, int start) {
  MUSTER_ASSIGN_OR_RETURN(const auto writer, EventWriter::Open(folder, {.first_step = start}));
  const int end = start == 1 ? 40 : 60;
  for (int step = start; step <= end; ++step) {
    const double loss = start == 1 && step > 20 ? -1 : 1.0 / step;
    MUSTER_RETURN_IF_ERROR(
        writer->Scalars(step, {{"loss", loss}, {"näme/with slash", std::sqrt(step)}}));
    if (step == 20 || step == 30)
      MUSTER_RETURN_IF_ERROR(WriteOthers(writer.get(), step, start == 1 && step > 20));
  }
  MUSTER_RETURN_IF_ERROR(writer->Scalars(end + 1, {{"loss", std::nan("")}}));
  MUSTER_RETURN_IF_ERROR(
      writer->Scalars(end + 2, {{"loss", -std::numeric_limits<double>::infinity()}}));
  return writer->Sync();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  for (const int start : {1, 21}) {
    const absl::Status written = WriteRun(std::string(argv[1]) + "/train", start);
    if (!written.ok()) {
      std::cerr << muster::Message(written) << '\n';
      return 1;
    }
  }
  return 0;
}
