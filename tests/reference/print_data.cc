// Reads lines {"data": a job's data, "split": "train", "folder": ..., "epoch": e, "batch": b,
// "threads": t, "replicas": r} and prints, for each, the split's columns with all examples in their
// order, read in batches of b by so many threads, each batch in parts for so many replicas:
// {"columns": [{"name", "dtype", "shape", "classes", "bytes": hexadecimal}]}, or {"error", "code"}.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <string>

#include "common/data/job/job_datasets.h"
#include "common/data/pipeline.h"
#include "tests/reference/answer_lines.h"

namespace muster {
namespace {

absl::StatusOr<Json> Examples(const Json& asked) {
  Json data;
  std::string folder, split = "train";
  std::vector<std::string> before;  // splits that are opened first
  int64_t epoch = 0, size = 4;
  int threads = 0, replicas = 1;
  JsonObject object(asked, "");
  object.Read("data", &data)
      .Read("folder", &folder)
      .Read("split", &split)
      .Read("epoch", &epoch)
      .Read("batch", &size)
      .Read("threads", &threads)
      .Read("replicas", &replicas)
      .Read("open", &before);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  MUSTER_ASSIGN_OR_RETURN(const auto datasets, data::JobDatasets::Make(data, folder));
  const auto named = [](const std::string& name) {
    return name == "train" ? Split::kTrain : Split::kValidation;
  };
  for (const std::string& name : before)
    MUSTER_RETURN_IF_ERROR(datasets->Open(named(name)).status());
  MUSTER_ASSIGN_OR_RETURN(const data::OpenSplit open, datasets->Open(named(split)));
  Json columns = Json::array();
  for (const data::Column& column : open.columns) {
    columns.push_back({{"name", column.name},
                       {"dtype", c10::toString(column.type)},
                       {"shape", column.shape},
                       {"classes", column.classes},
                       {"bytes", ""}});
  }
  const int64_t count = open.dataset->size();
  const auto pipeline = data::Pipeline::Make(
      open.dataset, data::Sampler(count, size, /*drop_remainder=*/false), {epoch, 0}, 0, replicas,
      replicas, {.threads = threads, .prefetch = 2 * threads, .seed = 7, .repeat = false});
  for (int64_t part = 0;; ++part) {
    const absl::StatusOr<data::LoadedBatch> loaded =
        pipeline->Next(static_cast<int>(part % replicas));
    if (absl::IsOutOfRange(loaded.status())) break;
    MUSTER_RETURN_IF_ERROR(loaded.status());
    const data::Batch& batch = loaded->batch;
    for (size_t c = 0; c < batch.size(); ++c) {
      if (batch[c].scalar_type() != open.columns[c].type ||
          batch[c].sizes().slice(1) != at::IntArrayRef(open.columns[c].shape)) {
        return ProgramError(fmt::format("column {} is not what was said", c));
      }
      const at::Tensor flat = batch[c].contiguous();
      std::string& bytes = columns[c]["bytes"].get_ref<std::string&>();
      for (size_t i = 0; i < flat.nbytes(); ++i) {
        fmt::format_to(std::back_inserter(bytes), "{:02x}",
                       static_cast<const uint8_t*>(flat.const_data_ptr())[i]);
      }
    }
  }
  return Json{{"columns", std::move(columns)}};
}

absl::Status PrintData(const std::string& line) {
  MUSTER_ASSIGN_OR_RETURN(const Json asked, ParseJson(line, "the line"));
  const absl::StatusOr<Json> found = Examples(asked);
  const Json answer = found.ok() ? *found
                                 : Json{{"error", std::string(Message(found.status()))},
                                        {"code", static_cast<int>(ExitCodeOf(found.status()))}};
  std::cout << Dump(answer) << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace muster

int main() { return muster::testing::AnswerLines(muster::PrintData); }
