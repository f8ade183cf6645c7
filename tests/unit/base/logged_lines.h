// Collects the log lines during its life, for tests.
#pragma once

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/dist_sink.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

namespace muster::testing {

// A logger's list of sinks must not change while threads log. This sink is added before main, and
// its own list may change at any time.
inline const std::shared_ptr<spdlog::sinks::dist_sink_mt> collected_lines = [] {
  auto sink = std::make_shared<spdlog::sinks::dist_sink_mt>();
  spdlog::default_logger()->sinks().push_back(sink);
  return sink;
}();

class LoggedLines {
 public:
  LoggedLines() { collected_lines->add_sink(sink_); }
  ~LoggedLines() { collected_lines->remove_sink(sink_); }
  LoggedLines(const LoggedLines&) = delete;
  LoggedLines& operator=(const LoggedLines&) = delete;

  std::string text() const {
    const std::lock_guard lock(sink_->mu);
    return sink_->said;
  }
  // Blocks until `what` is logged. Returns false after the limit.
  bool Await(const std::string& what, std::chrono::seconds limit = std::chrono::seconds(20)) const {
    std::unique_lock lock(sink_->mu);
    return sink_->more.wait_for(lock, limit,
                                [&] { return sink_->said.find(what) != std::string::npos; });
  }
  // Returns how often `what` was logged.
  int Count(const std::string& what) const {
    int count = 0;
    const std::string said = text();
    for (size_t at = 0; (at = said.find(what, at)) != std::string::npos; ++at) ++count;
    return count;
  }

 private:
  struct Sink final : spdlog::sinks::base_sink<std::mutex> {
    void sink_it_(const spdlog::details::log_msg& line) override {
      const std::lock_guard lock(mu);
      said.append(line.payload.data(), line.payload.size()) += '\n';
      more.notify_all();
    }
    void flush_() override {}
    std::mutex mu;
    std::condition_variable more;
    std::string said;
  };
  const std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
};

}  // namespace muster::testing
