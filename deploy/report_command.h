// `muster report RUN... -o FILE`. Writes a page that compares runs. See docs/report.md. Exit code
// 2: a RUN is not a run, or FILE cannot be written. A damaged run is not a failure: the page lists
// the damage.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeReportCommand();

}  // namespace muster
