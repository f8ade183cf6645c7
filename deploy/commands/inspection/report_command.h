// `muster report RUN... -o FILE`. Writes an HTML page that compares runs. Each RUN is a model_dir,
// the folder of a run's output. See docs/report.md. Exit code 2: a RUN is not a model_dir, or FILE
// cannot be written. If a run is damaged, the exit code is 0 and the page lists the damage.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeReportCommand();

}  // namespace muster
