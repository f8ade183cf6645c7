// Writes what hparams_test.py expects: write_hparams FOLDER
#include <iostream>
#include <string>

#include "common/summary/event_writer.h"
#include "common/summary/graph_def.h"
#include "common/summary/hyperparameters.h"

namespace {

using namespace muster;
using summary::EventWriter;

std::string Graph() {
  summary::GraphBuilder builder;
  const int weight = builder.AddLeaf("net.layer.weight", summary::kParameterOp, {3, 4});
  const int input = builder.AddLeaf("input", "input", {8, 4});
  const int turned = builder.AddOperation("T", {weight});
  const int product = builder.AddOperation("Mm", {input, turned});
  builder.SetShape(product, {8, 3});
  builder.AddOperation("Relu", {builder.AddOperation("Relu", {product})});
  return summary::GraphDefOf(builder.Take());
}

// Runs differ in a value, in a key and in their ends. `again`: a second process continues the run.
absl::Status WriteRun(const std::string& folder, const Json& job, double final_loss, bool again,
                      const std::string& end) {
  MUSTER_ASSIGN_OR_RETURN(const auto writer,
                          EventWriter::Open(folder, {.first_step = again ? 3 : 1}));
  MUSTER_RETURN_IF_ERROR(
      writer->PluginData(again ? 2 : 0, summary::kSessionStartTag, summary::kHyperparametersPlugin,
                         summary::SessionStart(summary::Hyperparameters(job), 1000)));
  if (!again) MUSTER_RETURN_IF_ERROR(writer->Graph(1, Graph()));
  for (int step = again ? 3 : 1; step <= (again ? 4 : 2); ++step)
    MUSTER_RETURN_IF_ERROR(writer->Scalars(step, {{"loss", 1.0 / step}}));
  if (end.empty()) return writer->Sync();
  MUSTER_RETURN_IF_ERROR(writer->Scalars(4, {{"final/validation/loss", final_loss}}));
  MUSTER_RETURN_IF_ERROR(writer->PluginData(4, summary::kSessionEndTag,
                                            summary::kHyperparametersPlugin,
                                            summary::SessionEnd(end == "success", 1030)));
  return writer->Sync();
}

absl::Status Write(const std::string& folder) {
  Json job = {{"program", "linear"},
              {"optimizer", {{"name", "sgd"}, {"momentum", 0.9}}},
              {"learning_rate", 0.1},
              {"global_batch_size", 32},
              {"drop_remainder", true},
              {"max_steps", nullptr},
              {"model_dir", "somewhere"},
              {"timeouts", {{"join", 5}}},
              {"program_args", {{"hidden", {8, 4}}, {"näme", "ä\xff"}}}};
  MUSTER_RETURN_IF_ERROR(WriteRun(folder + "/a/train", job, 0.25, false, ""));
  MUSTER_RETURN_IF_ERROR(WriteRun(folder + "/a/train", job, 0.25, true, "success"));
  job["learning_rate"] = 0.2;
  job["optimizer"]["nesterov"] = true;
  return WriteRun(folder + "/b/train", job, 0.5, false, "failure");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const absl::Status written = Write(argv[1]);
  if (written.ok()) return 0;
  std::cerr << muster::Message(written) << '\n';
  return 1;
}
