#include "common/base/logging.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <cstdlib>

namespace muster {

void InitLogging(const std::string& who) {
  auto logger = std::make_shared<spdlog::logger>(
      "muster", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern(who.empty() ? "%H:%M:%S.%e %^%L%$ | %v"
                                  : "%H:%M:%S.%e %^%L%$ " + who + " | %v");
  logger->flush_on(spdlog::level::info);
  if (const char* level = std::getenv("MUSTER_LOG_LEVEL"))
    logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace muster
