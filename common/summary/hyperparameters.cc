#include "common/summary/hyperparameters.h"

#include <array>
#include <string_view>

#include "common/base/json/utf8.h"
#include "proto/hparams.pb.h"

namespace muster::summary {
namespace {

constexpr size_t kMaxValues = 200, kMaxName = 200, kMaxText = 500;
constexpr int kMaxLevel = 3;

// The job's keys whose values people choose for a result. Others say where and how long.
constexpr std::array<std::string_view, 20> kKeys = {"accumulate_steps",
                                                    "callbacks",
                                                    "data",
                                                    "deterministic",
                                                    "devices",
                                                    "drop_remainder",
                                                    "epochs",
                                                    "global_batch_size",
                                                    "learning_rate",
                                                    "loss_reduction",
                                                    "max_steps",
                                                    "optimizer",
                                                    "parameter_server",
                                                    "per_replica_batch_size",
                                                    "precision",
                                                    "program",
                                                    "program_args",
                                                    "seed",
                                                    "steps_per_epoch",
                                                    "strategy"};

bool IsScalar(const Json& value) {
  return value.is_boolean() || value.is_number() || value.is_string();
}

void Add(const std::string& name, const Json& value, int level, std::map<std::string, Json>* out) {
  if (value.is_null() || out->size() >= kMaxValues || name.size() > kMaxName) return;
  if (IsScalar(value)) {
    out->emplace(name, value);
  } else if (value.is_object() && level < kMaxLevel) {
    for (const auto& [key, inner] : value.items()) Add(name + "." + key, inner, level + 1, out);
  } else if (!value.empty()) {
    out->emplace(name, Dump(value));
  }
}

google::protobuf::Value ValueOf(const Json& value) {
  google::protobuf::Value out;
  if (value.is_boolean()) {
    out.set_bool_value(value.get<bool>());
  } else if (value.is_number()) {
    out.set_number_value(value.get<double>());
  } else {
    out.set_string_value(ValidUtf8(value.get<std::string>().substr(0, kMaxText)));
  }
  return out;
}

}  // namespace

std::map<std::string, Json> Hyperparameters(const Json& job) {
  std::map<std::string, Json> values;
  if (!job.is_object()) return values;
  for (const std::string_view key : kKeys)
    if (const auto found = job.find(std::string(key)); found != job.end())
      Add(std::string(key), *found, 1, &values);
  return values;
}

std::string SessionStart(const std::map<std::string, Json>& values, double time) {
  HParamsPluginData data;
  SessionStartInfo* start = data.mutable_session_start_info();
  start->set_start_time_secs(time);
  for (const auto& [name, value] : values)
    (*start->mutable_hparams())[ValidUtf8(name)] = ValueOf(value);
  return data.SerializeAsString();
}

std::string SessionEnd(bool success, double time) {
  HParamsPluginData data;
  data.mutable_session_end_info()->set_status(success ? SessionEndInfo::SUCCESS
                                                      : SessionEndInfo::FAILURE);
  data.mutable_session_end_info()->set_end_time_secs(time);
  return data.SerializeAsString();
}

}  // namespace muster::summary
