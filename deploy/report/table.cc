#include "deploy/report/table.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "common/base/json/lenient_fields.h"
#include "common/base/json/utf8.h"
#include "common/telemetry/progress.h"
#include "deploy/report/html.h"

namespace muster::report {
namespace {

constexpr const char* kPreferredSplits[] = {"eval", "test", "validation", "train"};
constexpr std::string_view kEpoch = "epoch_";

template <typename T>
OrderedJson OrNull(const std::optional<T>& value) {
  return value ? OrderedJson(*value) : OrderedJson();
}

OrderedJson TextOrNull(const std::string& text) {
  return text.empty() ? OrderedJson() : OrderedJson(text);
}

// Returns the last value of each epoch_<metric> of a split, for a run without a result.
OrderedJson LastMetrics(const summary::RunContent& content) {
  OrderedJson metrics;
  for (const auto& [tag, points] : content.scalars)
    if (tag.starts_with(kEpoch)) metrics[tag.substr(kEpoch.size())] = points.back().value;
  return metrics;
}

OrderedJson MetricsOf(const Run& run) {
  OrderedJson metrics = OrderedJson::object();
  for (const char* split : kPreferredSplits) {
    const auto folder = run.folders.find(split);
    OrderedJson of_split;
    if (run.result.is_object())
      of_split = FieldAt(run.result, {"metrics", split});
    else if (folder != run.folders.end())
      of_split = LastMetrics(folder->second);
    if (of_split.is_object() && !of_split.empty()) metrics[split] = std::move(of_split);
  }
  return metrics;
}

const std::vector<summary::Point>* CurveOf(const Run& run, const char* tag) {
  const auto train = run.folders.find("train");
  if (train == run.folders.end()) return nullptr;
  const auto curve = train->second.scalars.find(tag);
  return curve == train->second.scalars.end() ? nullptr : &curve->second;
}

// Returns the field of result.json, or the median of the curve for a run without a result.
std::optional<double> MedianOf(const Run& run, const char* name) {
  if (run.result.is_object()) return NumberAt(run.result, {name});
  const auto* curve = CurveOf(run, name);
  if (curve == nullptr) return std::nullopt;
  std::vector<double> values;
  for (const summary::Point& point : *curve) values.push_back(point.value);
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::optional<int64_t> StepsOf(const Run& run) {
  if (run.result.is_object()) return IntegerAt(run.result, {"steps"});
  int64_t last = -1;
  if (const auto train = run.folders.find("train"); train != run.folders.end())
    for (const auto& [tag, points] : train->second.scalars)
      for (const summary::Point& point : points) last = std::max(last, point.step);
  return last < 0 ? std::nullopt : std::optional(last);
}

std::string StatusOf(const Run& run) {
  const std::string status = TextAt(run.result, {"status"});
  return status.empty() ? "no result" : status;
}

OrderedJson RowOf(const Run& run, std::optional<double> price) {
  const double seconds = SecondsOf(run);
  const auto members = NumberAt(run.result, {"world_size"});
  std::optional<double> cost;
  if (price && members) cost = *price * *members * seconds / 3600;
  OrderedJson hardware = FieldAt(run.result, {"hardware"});
  OrderedJson row = {{"name", ValidUtf8(run.name)},
                     {"path", ValidUtf8(run.path)},
                     {"status", StatusOf(run)},
                     {"cause", TextOrNull(TextAt(run.result, {"cause"}))},
                     {"program", TextOrNull(TextAt(run.job, {"program"}))},
                     {"began", run.began > 0 ? OrderedJson(run.began) : OrderedJson()},
                     {"seconds", seconds > 0 ? OrderedJson(seconds) : OrderedJson()},
                     {"cost", OrNull(cost)},
                     {"metrics", MetricsOf(run)},
                     {"examples_per_second", OrNull(MedianOf(run, "examples_per_second"))},
                     {"input_wait_share", OrNull(MedianOf(run, "input_wait_share"))}};
  for (const char* part : {"compute", "wait", "input"})
    row["step_seconds"][part] = OrNull(NumberAt(run.result, {"step_seconds", part}));
  row["steps"] = OrNull(StepsOf(run));
  for (const char* key : {"epochs", "examples", "world_size", "num_replicas"})
    row[key] = OrNull(IntegerAt(run.result, {key}));
  row["global_batch_size"] = OrNull(IntegerAt(run.job, {"global_batch_size"}));
  for (const char* key : {"losses", "restarts"}) row[key] = OrNull(IntegerAt(run.recovery, {key}));
  row["seconds_lost"] = OrNull(NumberAt(run.recovery, {"seconds_lost"}));
  row["hardware"] = hardware.is_object() ? std::move(hardware) : OrderedJson();
  row["versions"] = FieldAt(run.result, {"versions"});
  row["problems"] = OrderedJson::array();
  for (const std::string& problem : run.problems) row["problems"].push_back(ValidUtf8(problem));
  return row;
}

// ---- HTML

struct Column {
  std::string title;
  bool number = true;
  // Returns the text of a cell, "" if the run does not have the value.
  std::function<std::string(const OrderedJson& row)> text;
};

const OrderedJson& At(const OrderedJson& row, const std::string& pointer) {
  static const OrderedJson null;
  const OrderedJson::json_pointer at(pointer);
  return row.contains(at) ? row.at(at) : null;
}

using Format = std::string (*)(double);

Column Number(const char* title, const char* pointer, Format format) {
  return {title, true, [=](const OrderedJson& row) {
            const OrderedJson& value = At(row, pointer);
            return value.is_number() ? format(value.get<double>()) : std::string();
          }};
}

Column Text(const char* title, const char* pointer) {
  return {title, false, [=](const OrderedJson& row) {
            const OrderedJson& value = At(row, pointer);
            return value.is_string() ? value.get<std::string>() : std::string();
          }};
}

std::string Grouped(double value) {
  return std::fabs(value) < 9e15 ? FormatGrouped(static_cast<int64_t>(value))
                                 : fmt::format("{:.3g}", value);
}
std::string Percent(double value) { return fmt::format("{:.1f} %", 100 * value); }
std::string Money(double value) {
  return value < 1 ? fmt::format("{:.2g}", value) : fmt::format("{:.2f}", value);
}
std::string Milliseconds(double value) { return fmt::format("{:.3g} ms", 1000 * value); }
std::string Time(double value) {
  if (!(value < 4e9)) return fmt::format("{:.3g} s", value);  // Damaged.
  return value < 60 ? fmt::format("{:.1f} s", value) : FormatSeconds(value);
}
std::string Utc(double value) {
  if (!(value > 0 && value < 4e10)) return "";  // Damaged.
  const auto seconds = static_cast<std::time_t>(value);
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(seconds));
}

// A metric is null in result.json if it was not finite.
std::string MetricText(const OrderedJson& metric) {
  if (metric.is_number()) return fmt::format("{:.5g}", metric.get<double>());
  return metric.is_null() ? "not finite" : "";
}

std::string HardwareText(const OrderedJson& row) {
  const OrderedJson& hardware = At(row, "/hardware");
  if (!hardware.is_object()) return "";
  const Json plain = hardware;
  std::string text = TextAt(plain, {"cpu"});
  if (const auto cores = NumberAt(plain, {"cores"})) text += fmt::format(", {:.0f} cores", *cores);
  if (const auto memory = NumberAt(plain, {"memory_bytes"}))
    text += fmt::format(", {:.0f} GiB", *memory / (1 << 30));
  return text;
}

std::vector<Column> MetricColumns(const OrderedJson& runs) {
  std::vector<Column> columns;
  for (const char* split : kPreferredSplits) {
    std::set<std::string> names;
    for (const OrderedJson& row : runs)
      if (row.at("metrics").contains(split))
        for (const auto& [name, value] : row.at("metrics").at(split).items()) names.insert(name);
    for (const std::string& name : names) {
      columns.push_back({fmt::format("{} {}", split, name), true, [=](const OrderedJson& row) {
                           const OrderedJson& metrics = row.at("metrics");
                           const bool has =
                               metrics.contains(split) && metrics.at(split).contains(name);
                           return has ? MetricText(metrics.at(split).at(name)) : std::string();
                         }});
    }
  }
  return columns;
}

std::vector<Column> ColumnsOf(const OrderedJson& table) {
  std::vector<Column> columns = {Text("status", "/status"), Text("program", "/program"),
                                 Number("began", "/began", Utc), Number("time", "/seconds", Time),
                                 Number("cost", "/cost", Money)};
  for (Column& column : MetricColumns(table.at("runs"))) columns.push_back(std::move(column));
  for (Column& column : std::vector<Column>{
           Number("examples/s", "/examples_per_second", Grouped),
           Number("input wait", "/input_wait_share", Percent),
           Number("compute/step", "/step_seconds/compute", Milliseconds),
           Number("wait/step", "/step_seconds/wait", Milliseconds),
           Number("input/step", "/step_seconds/input", Milliseconds),
           Number("steps", "/steps", Grouped), Number("epochs", "/epochs", Grouped),
           Number("batch", "/global_batch_size", Grouped),
           Number("world size", "/world_size", Grouped),
           Number("replicas", "/num_replicas", Grouped), Number("losses", "/losses", Grouped),
           Number("restarts", "/restarts", Grouped), Number("time lost", "/seconds_lost", Time),
           Column{"hardware of the chief", false, HardwareText}, Text("Muster", "/versions/muster"),
           Text("LibTorch", "/versions/libtorch")})
    columns.push_back(std::move(column));
  return columns;
}

void Flatten(const Json& json, const std::string& path, std::map<std::string, std::string>* keys) {
  if (json.is_object() && !json.empty()) {
    for (const auto& [key, value] : json.items())
      Flatten(value, path.empty() ? key : path + "." + key, keys);
  } else {
    (*keys)[path] = json.is_string() ? json.get<std::string>() : Dump(json);
  }
}

}  // namespace

OrderedJson TableJson(const std::vector<Run>& runs, std::optional<double> price_per_hour) {
  OrderedJson rows = OrderedJson::array();
  for (const Run& run : runs) rows.push_back(RowOf(run, price_per_hour));
  return {{"price_per_hour", OrNull(price_per_hour)}, {"runs", std::move(rows)}};
}

std::string TableHtml(const OrderedJson& table) {
  const OrderedJson& runs = table.at("runs");
  std::vector<Column> columns = ColumnsOf(table);
  std::erase_if(columns, [&](const Column& column) {
    return std::all_of(runs.begin(), runs.end(),
                       [&](const OrderedJson& row) { return column.text(row).empty(); });
  });
  std::string html = "<thead><tr><th scope=\"col\">run</th>";
  for (const Column& column : columns)
    html += fmt::format("<th scope=\"col\"{}>{}</th>", column.number ? " class=\"n\"" : "",
                        Escaped(column.title));
  html += "</tr></thead>\n<tbody>";
  for (const OrderedJson& row : runs) {
    html += fmt::format("<tr><th scope=\"row\" title=\"{}\">{}</th>",
                        Escaped(row.at("path").get<std::string>()),
                        Escaped(row.at("name").get<std::string>()));
    for (const Column& column : columns) {
      const std::string text = column.text(row);
      html += fmt::format("<td{}>{}</td>", column.number ? " class=\"n\"" : "",
                          text.empty() ? "–" : Escaped(text));
    }
    html += "</tr>\n";
  }
  return html + "</tbody>";
}

std::string JobsHtml(const std::vector<Run>& runs) {
  std::set<std::string> keys;
  std::vector<std::map<std::string, std::string>> jobs;
  for (const Run& run : runs) {
    auto& job = jobs.emplace_back();
    if (run.job.is_object()) Flatten(run.job, "", &job);
    for (const auto& [key, value] : job) keys.insert(key);
  }
  std::string rows;
  for (const std::string& key : keys) {
    const auto of = [&](size_t run) {
      const auto found = jobs[run].find(key);
      return found == jobs[run].end() ? std::string("–") : found->second;
    };
    bool same = true;
    for (size_t i = 0; i < runs.size(); ++i)
      same = same && (runs[i].job.is_null() || of(i) == of(0));
    if (same || key == "model_dir") continue;
    rows += fmt::format("<tr><th scope=\"row\">{}</th>", Escaped(key));
    for (size_t i = 0; i < runs.size(); ++i) rows += fmt::format("<td>{}</td>", Escaped(of(i)));
    rows += "</tr>\n";
  }
  if (rows.empty()) return "";
  std::string head = "<thead><tr><th scope=\"col\">key</th>";
  for (const Run& run : runs) head += fmt::format("<th scope=\"col\">{}</th>", Escaped(run.name));
  return head + "</tr></thead>\n<tbody>" + rows + "</tbody>";
}

}  // namespace muster::report
