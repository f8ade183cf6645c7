#include "common/base/logging.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <cstdlib>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster {
namespace {

// The sink of the default logger; hooks run under its lock.
class HookedSink final : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) override {
    absl::MutexLock lock(&mutex_);
    if (before_) before_();
    below_.log(message);
    below_.flush();
    if (after_) after_();
  }
  void flush() override {
    absl::MutexLock lock(&mutex_);
    below_.flush();
  }
  void set_pattern(const std::string& pattern) override {
    absl::MutexLock lock(&mutex_);
    below_.set_pattern(pattern);
  }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    absl::MutexLock lock(&mutex_);
    below_.set_formatter(std::move(formatter));
  }
  void SetHooks(std::function<void()> before, std::function<void()> after) {
    absl::MutexLock lock(&mutex_);
    before_ = std::move(before);
    after_ = std::move(after);
  }

 private:
  absl::Mutex mutex_;
  spdlog::sinks::stderr_color_sink_st below_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> before_ ABSL_GUARDED_BY(mutex_), after_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void InitLogging(const std::string& who) {
  auto logger = std::make_shared<spdlog::logger>("muster", std::make_shared<HookedSink>());
  const char* name_task = std::getenv(kLogTaskVariable);
  const bool bare = who.empty() || (name_task != nullptr && std::string_view(name_task) == "0");
  logger->set_pattern(bare ? "%H:%M:%S.%e %^%L%$ | %v" : "%H:%M:%S.%e %^%L%$ " + who + " | %v");
  logger->flush_on(spdlog::level::info);
  if (const char* level = std::getenv("MUSTER_LOG_LEVEL"))
    logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(std::move(logger));
}

void SetLogHooks(std::function<void()> before, std::function<void()> after) {
  for (const spdlog::sink_ptr& sink : spdlog::default_logger()->sinks()) {
    if (auto* hooked = dynamic_cast<HookedSink*>(sink.get())) hooked->SetHooks(before, after);
  }
}

}  // namespace muster
