#include "chief/status/page_feed.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "chief/status/json_patch.h"
#include "common/telemetry/run_status.h"

namespace muster::chief {
namespace {

// The fields of a task's stats that the page shows.
constexpr const char* kShownStats[] = {"steps_per_second",   "examples_per_second",
                                       "input_share",        "wait_share",
                                       "local_step_seconds", "staleness",
                                       "restarts",           "cpu_cores",
                                       "rss_bytes",          "gpus"};

double FourDigits(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double scale = std::pow(10, 3 - std::floor(std::log10(std::abs(value))));
  return std::isfinite(scale) ? std::round(value * scale) / scale : value;
}

Json Rounded(const Json& json) {
  if (json.is_number_float()) return FourDigits(json.get<double>());
  if (!json.is_structured()) return json;
  Json rounded = json;
  for (Json& value : rounded) value = Rounded(value);
  return rounded;
}

// Rounds an age to seconds, or from ten on to tens of seconds.
void Coarsen(Json* object, const char* key) {
  const auto age = object->find(key);
  if (age == object->end() || !age->is_number()) return;
  const double grid = age->get<double>() < 10 ? 1 : 10;
  *age = static_cast<int64_t>(std::floor(age->get<double>() / grid) * grid);
}

Json PageTask(Json task) {
  Coarsen(&task, "phase_age_seconds");
  Coarsen(&task, "silence_seconds");
  if (!task["stats"].is_object()) return task;
  Json shown = Json::object();
  for (const char* key : kShownStats) shown[key] = task["stats"][key];
  shown["rss_bytes"] = FourDigits(shown["rss_bytes"].get<double>());
  for (Json& gpu : shown["gpus"])
    for (const char* key : {"memory_used_bytes", "memory_total_bytes"})
      gpu[key] = FourDigits(gpu[key].get<double>());
  task["stats"] = std::move(shown);
  return task;
}

Json PointsJson(const Curves::News& news) {
  Json points = Json::array();
  const auto number = [](double value) {
    return std::isfinite(value) ? Json(FourDigits(value)) : Json();
  };
  for (const CurvePoint& point : news.points)
    points.push_back({point.step, number(point.loss), number(point.examples_per_second),
                      number(point.step_seconds)});
  return {{"replaces", news.replaces}, {"points", std::move(points)}};
}

// Returns the events keyed by number. `last` is the number of the last event.
Json EventsJson(const std::vector<proto::RunEvent>& events, uint64_t last, double uptime) {
  proto::StatusReply reply;
  for (const proto::RunEvent& event : events) *reply.add_events() = event;
  Json json = std::move(StatusToJson(reply)["events"]);
  uint64_t number = last - events.size();
  for (Json& event : json) {
    event["number"] = ++number;
    // Unlike the age, the time since the coordinator's start does not change.
    event["at"] = std::round(uptime - event["age_seconds"].get<double>());
    event.erase("age_seconds");
  }
  return json;
}

}  // namespace

Json PageState(const proto::StatusReply& reply) {
  Json state = StatusToJson(reply);
  state.erase("events");
  state["uptime_seconds"] = std::floor(reply.uptime_seconds());
  Json tasks = Json::object();
  for (size_t i = 0; i < state["tasks"].size(); ++i)
    tasks[std::to_string(i)] = PageTask(std::move(state["tasks"][i]));
  state["tasks"] = std::move(tasks);
  if (state["progress"].is_object()) Coarsen(&state["progress"], "checkpoint_age_seconds");
  Json stragglers = Json::array();
  for (const Straggler& straggler : StragglersOf(reply))
    stragglers.push_back(StragglerText(straggler));
  state["stragglers"] = std::move(stragglers);
  return Rounded(state);
}

proto::StatusReply PageFeed::Ask() const {
  proto::StatusReply reply = source_();
  reply.clear_events();
  watch_.Describe(&reply);
  return reply;
}

void PageFeed::Refresh(MonotonicTime now) {
  if (asked_at_ && now - *asked_at_ < kInterval) return;
  asked_at_ = now;
  const proto::StatusReply reply = Ask();
  Json state = PageState(reply);
  Json message = Json::object();
  Json patch = MergePatchOf(state_, state);
  if (!patch.empty()) message["patch"] = std::move(patch);
  const Curves::News news = watch_.CurvesSince(&points_);
  if (news.replaces || !news.points.empty()) message["points"] = PointsJson(news);
  const auto events = watch_.EventsSince(&events_);
  if (!events.empty()) message["events"] = EventsJson(events, events_, reply.uptime_seconds());
  if (message.empty()) return;
  state_ = std::move(state);
  patches_.push_back({++id_, Dump(message)});
  if (patches_.size() > kMaxPatches) patches_.pop_front();
}

std::optional<PageMessage> PageFeed::Next(uint64_t after, MonotonicTime now) {
  absl::MutexLock lock(&mu_);
  read_at_ = now;
  Refresh(now);
  if (after == id_) return std::nullopt;
  if (after < id_ && !patches_.empty() && after + 1 >= patches_.front().id)
    return patches_[after + 1 - patches_.front().id];
  CurveCursor points;
  uint64_t events = 0;
  const auto all = watch_.EventsSince(&events);
  return PageMessage{
      id_, Dump(Json{{"state", state_},
                     {"points", PointsJson(watch_.CurvesSince(&points))},
                     {"events", EventsJson(all, events, state_["uptime_seconds"].get<double>())}})};
}

bool PageFeed::AskAgain(MonotonicTime now) {
  absl::MutexLock lock(&mu_);
  asked_at_.reset();
  return read_at_ && now - *read_at_ < std::chrono::seconds(2);
}

Json PageFeed::Whole() {
  const proto::StatusReply reply = Ask();
  Json whole = StatusToJson(reply);
  CurveCursor cursor;
  Json curves = {{"step", Json::array()},
                 {"loss", Json::array()},
                 {"examples_per_second", Json::array()},
                 {"step_seconds", Json::array()}};
  const auto number = [](double value) { return std::isfinite(value) ? Json(value) : Json(); };
  for (const CurvePoint& point : watch_.CurvesSince(&cursor).points) {
    curves["step"].push_back(point.step);
    curves["loss"].push_back(number(point.loss));
    curves["examples_per_second"].push_back(number(point.examples_per_second));
    curves["step_seconds"].push_back(number(point.step_seconds));
  }
  whole["curves"] = std::move(curves);
  return whole;
}

}  // namespace muster::chief
